"""quire itself: `LLM` in a child process, and `quire serve`.

python -m benchmarks.peers.quire_peer MODEL [--prefixes]
"""

import sys
import time
from pathlib import Path

from benchmarks.peers.cases import CONTEXT, Case
from benchmarks.peers.child import Generate, Timing, answer_lines
from benchmarks.peers.server_process import ServerCommand

MODULE = "benchmarks.peers.quire_peer"
PREFIXES = "--prefixes"
_MOST_STREAMS = 64


def load(model: str, prefixes: bool) -> Generate:
    """A quire as wide as the widest case, with or without its prefix cache."""
    from quire import LLM, SamplingParams

    sizes = {"max_num_seqs": _MOST_STREAMS, "max_model_len": CONTEXT}
    llm = LLM(model, enable_prefix_caching=prefixes, **sizes)

    def generate(prompts: list[list[int]], output: int) -> Timing:
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        start = time.monotonic()  # the clock of the engine's own times
        answers = llm.generate(prompts, params, use_tqdm=False)
        total = time.monotonic() - start
        assert all(len(answer.outputs[0].token_ids) == output for answer in answers)
        firsts = [answer.metrics.first_token_time for answer in answers]
        return Timing(min(first for first in firsts if first is not None) - start, total)

    return generate


def server(model: str, case: Case, port: int, python: Path = Path(sys.executable)) -> ServerCommand:
    command = [str(python), "-m", "quire.cli.main", "serve", model, "--port", str(port)]
    sizes = ["--max-num-seqs", str(case.streams), "--max-model-len", str(CONTEXT)]
    caching = "--enable-prefix-caching" if case.shared else "--no-enable-prefix-caching"
    return ServerCommand([*command, *sizes, caching], model_name=model)


if __name__ == "__main__":
    answer_lines(lambda: load(sys.argv[1], PREFIXES in sys.argv[2:]))
