"""What tests of speculative decoding share: a model as it answers with drafts and without."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quire.config.engine import EngineConfig
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.engine.loop import EngineLoop
from quire.engine.start import start_loop
from quire.kvcache.invariants import check
from quire.sampling.logprobs import LogprobsTensors
from quire.worker.decode_graphs import DecodeGraphs
from tests.scheduler.bookkeeping import AlwaysAll

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 4}
Answers = dict[tuple[str, int], list[int]]


def start(path: Path, drafting: dict[str, Any] | None, **settings: Any) -> EngineLoop:
    settings = {"num_gpu_blocks_override": 200, "block_size": 4, "cpu_threads": 1, **settings}
    asked = EngineConfig.from_flat(model=str(path), speculative_config=drafting, **settings)
    loop = start_loop(asked, path, seed=3).loop
    if drafting is not None:
        loop.scheduler._draft_length = AlwaysAll(asked.scheduler.num_drafts)  # whatever the clock says
    return loop


def as_on_a_gpu(loop: EngineLoop) -> EngineLoop:
    """Two steps in flight, decodes by graph, and a host that is told of nothing in time."""
    worker = loop.executor._worker  # type: ignore[attr-defined]
    limits = worker._limits
    worker._graphs = ImitatedGraphs(
        *(worker._compute, worker._draw, limits.max_num_seqs, worker._rows.spare, torch.device("cpu")),
        most_drafts=limits.num_drafts,
    )
    worker._constrained._can_jump = False
    if worker._drafting is not None:
        worker._drafting._is_read_first = False
    loop.executor.max_in_flight = 2
    loop._most_in_flight = 2
    return loop


class ImitatedGraphs(DecodeGraphs):
    """What was recorded is done again, and written to where it was written first."""

    def _record(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        first = work()

        def replay() -> None:
            for kept, new in zip(_tensors(first), _tensors(work()), strict=True):
                kept.copy_(new)

        return replay, first

    def run(self, *args: Any, **settings: Any) -> Any:
        drawn = super().run(*args, **settings)
        return replace(drawn, logprobs=copy.deepcopy(drawn.logprobs))  # a GPU's go to the host before the next step


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    found = [getattr(result, name) for name in result.__dataclass_fields__]
    of_logprobs = [(each.packed, each.named) for each in found if isinstance(each, LogprobsTensors)]
    return [each for each in (*found, *(tensor for pair in of_logprobs for tensor in pair)) if isinstance(each, Tensor)]


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
