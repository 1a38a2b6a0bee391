"""Running a checkpoint through scheduler, worker and sampler, with the logits of every sampled token."""

from pathlib import Path
from typing import Any

import torch

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.adapter import AdapterRef
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.engine.assemble import make_scheduler
from quire.engine.loop import EngineLoop
from quire.executor.inline import InlineExecutor
from quire.kvcache.invariants import check
from quire.models.loading.header import read_model_facts
from quire.worker.device import device_facts
from quire.worker.start import start_worker


class Runner:
    """An engine of a given size around one checkpoint."""

    def __init__(self, path: Path, device: str = "cpu", **settings: Any) -> None:
        settings = {"dtype": "float32", "block_size": 4, "num_gpu_blocks_override": 256, **settings}
        asked = EngineConfig.from_flat(model=str(path), **settings)
        self._facts = read_model_facts(str(path), impl=asked.model.model_impl)
        resolved = resolve(asked, self._facts, device_facts(torch.device(device)))
        worker = start_worker(path, resolved, device=torch.device(device))
        self._logits: list[torch.Tensor] = []
        project = worker._logits

        def recorded(hidden: torch.Tensor, prompts: range = range(0), *adapters: Any) -> torch.Tensor:
            logits = project(hidden, prompts, *adapters)
            self._logits.append(logits.clone())
            return logits

        if device == "cpu":  # a GPU's decodes are graphs, in which nothing can be kept
            worker._logits = recorded
        self.worker = worker
        self.scheduler = make_scheduler(resolved)
        self.loop = EngineLoop(self.scheduler, InlineExecutor(worker))
        self._next = 0

    def run(
        self, prompts: list[list[int]], count: int, adapters: list[AdapterRef | None] | None = None, **params: Any
    ) -> list[tuple[list[int], torch.Tensor]]:
        """Per prompt: `count` greedy tokens and, on a CPU, their logits [count, vocabulary]."""
        chosen = SamplingParams(max_tokens=count, ignore_eos=True, detokenize=False, **{"temperature": 0.0, **params})
        requests = []
        for prompt, adapter in zip(prompts, adapters or [None] * len(prompts), strict=True):
            variant = self._facts.spec.kv_variant(len(prompt))
            requests.append(
                Request(
                    id=f"r{self._next}",
                    prompt=Prompt(tuple(prompt), adapter=adapter),
                    params=chosen,
                    kv_variant=variant,
                )
            )
            self._next += 1
            self.loop.add(requests[-1])
        tokens: dict[str, list[int]] = {request.id: [] for request in requests}
        logits: dict[str, list[torch.Tensor]] = {request.id: [] for request in requests}
        while self.loop.has_work:
            self._logits.clear()
            update, ended = self.loop.step()
            assert not any(seq.failure for seq in ended), [seq.failure for seq in ended]
            check(self.scheduler.kv)
            for place, (seq, token) in enumerate(zip(update.sequences, update.tokens, strict=True)):
                tokens[seq.request.id].append(token)
                logits[seq.request.id].append(self._logits[-1][place] if self._logits else torch.empty(0))
        return [(tokens[request.id], torch.stack(logits[request.id])) for request in requests]
