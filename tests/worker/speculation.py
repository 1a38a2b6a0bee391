"""What tests of speculative decoding share: a model as it answers with drafts and without."""

from pathlib import Path
from typing import Any

from quire.config.engine import EngineConfig
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.engine.loop import EngineLoop
from quire.engine.start import start_loop
from quire.kvcache.invariants import check

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
Answers = dict[tuple[str, int], list[int]]


def start(path: Path, drafting: dict[str, Any] | None, **settings: Any) -> EngineLoop:
    settings = {"num_gpu_blocks_override": 200, "block_size": 4, "cpu_threads": 1, **settings}
    asked = EngineConfig.from_flat(model=str(path), speculative_config=drafting, **settings)
    return start_loop(asked, path, seed=3).loop


def requests(params: list[dict[str, Any]], length: int = 24, **common: Any) -> list[Request]:
    """Prompts that repeat themselves, each in its own way, so that there is something to look up."""
    return [
        Request(
            id=f"r{number}",
            prompt=Prompt(tuple(5 + (place * (1 + number % 5)) % (4 + number % 7) for place in range(7 + number % 11))),
            params=SamplingParams(**{"max_tokens": length, "ignore_eos": True, "detokenize": False} | common | given),
        )
        for number, given in enumerate(params)
    ]


def run(loop: EngineLoop, asked: list[Request]) -> Answers:
    """All tokens of each sequence; a request is added before each of the first steps."""
    tokens: Answers = {}
    waiting = list(asked)
    while waiting or loop.has_work:
        if waiting:
            loop.add(waiting.pop(0))
        update, ended = loop.step()
        check(loop.scheduler.kv)
        assert not any(seq.failure for seq in ended)
        for seq, token in zip(update.sequences, update.tokens, strict=True):
            tokens.setdefault((seq.request.id, seq.index), []).append(token)
    return tokens
