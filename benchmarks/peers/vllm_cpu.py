"""vLLM's CPU build: `LLM` in a child process under vLLM's own Python, and its server.

It reads no GGUF on CPUs, so it gets the same weights expanded (transformers_peer --save).

    VLLM_PYTHON -m benchmarks.peers.vllm_cpu FOLDER --dtype bfloat16
"""

import argparse
import itertools
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import CONTEXT, Case
from benchmarks.peers.child import Generate, Timing, answer_lines
from benchmarks.peers.server_process import ServerCommand

MODULE = "benchmarks.peers.vllm_cpu"
_MOST_STREAMS = 64
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # as many threads as everyone, wherever the kernel puts them
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def load(folder: Path, dtype: str, eager: bool, prefixes: bool) -> Generate:
    os.environ.update(_ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    from vllm import LLM  # type: ignore[import-not-found, unused-ignore]

    llm = LLM(
        str(folder),
        dtype=dtype,
        enforce_eager=eager,
        enable_prefix_caching=prefixes,
        max_num_seqs=_MOST_STREAMS,
        max_model_len=CONTEXT,
    )
    numbers = itertools.count()

    def generate(prompts: list[list[int]], output: int) -> Timing:
        return _generate(llm.llm_engine, numbers, prompts, output)

    return generate


def _generate(engine: Any, numbers: "itertools.count[int]", prompts: list[list[int]], output: int) -> Timing:
    from vllm import SamplingParams  # type: ignore[import-not-found, unused-ignore]

    params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    first, ended = None, 0
    for prompt in prompts:
        engine.add_request(str(next(numbers)), {"prompt_token_ids": prompt}, params)
    while engine.has_unfinished_requests():
        answers = engine.step()
        if answers and first is None:
            first = time.perf_counter() - start
        ended += sum(len(answer.outputs[0].token_ids) for answer in answers if answer.finished)
    total = time.perf_counter() - start
    assert first is not None
    assert ended == len(prompts) * output
    return Timing(first, total)


def server(python: Path, folder: Path, dtype: str, eager: bool, case: Case, port: int, threads: int) -> ServerCommand:
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--dtype", dtype]
    caching = "--enable-prefix-caching" if case.shared else "--no-enable-prefix-caching"
    sizes = ["--max-num-seqs", str(case.streams), "--max-model-len", str(CONTEXT), caching]
    listen = ["--host", "127.0.0.1", "--port", str(port), *(["--enforce-eager"] if eager else [])]
    environment = _ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}
    return ServerCommand([*command, *sizes, *listen], model_name=str(folder), environment=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--prefixes", action="store_true", help="with the prefix cache")
    asked = parser.parse_args()
    answer_lines(lambda: load(asked.folder, asked.dtype, asked.eager, asked.prefixes))


if __name__ == "__main__":
    main()
