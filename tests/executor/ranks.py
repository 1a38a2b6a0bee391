"""Engines of several ranks for tests: real processes over gloo, which serve one model after the other."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolve import resolve
from quire.core.adapter import AdapterRef
from quire.core.media import MediaItem
from quire.core.prompt import Prompt, media_keys
from quire.core.rank_place import RankPlace
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sampling_params import SamplingParams
from quire.engine.assemble import make_engine_scheduler
from quire.engine.loop import EngineLoop
from quire.executor.base import Executor
from quire.executor.inline import inline
from quire.executor.other_rank import OtherRank
from quire.executor.process import ProcessExecutor, RankProcess, closing_on_failure, start_first
from quire.executor.rank_messages import RankSettings, frame
from quire.models.loading.drafter import plan_drafter
from quire.models.loading.header import read_model_facts
from quire.scheduler.intake import StepUpdate
from quire.worker.device import cpu_facts
from quire.worker.start import start_worker


class ServedRank(RankProcess):
    """A rank in a process that outlives it."""

    def __init__(self, settings: RankSettings, address: str, process: "subprocess.Popen[bytes]") -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        OtherRank.__init__(self, settings.rank, connection, settings.asked.parallel.rank_timeout)
        self._process = process
        self.send(frame(settings))
        self.listen()

    def close(self) -> None:
        self.hang_up()

    def _exit(self) -> str:
        return "it closed its connection"


class OtherRanks:
    """Processes for the ranks 1, 2 … of whatever model is run next."""

    def __init__(self, folder: Path, count: int) -> None:
        self._addresses = [str(folder / f"rank-{rank}") for rank in range(1, count + 1)]
        self._processes = [_listening(address) for address in self._addresses]

    def start(self, settings: RankSettings) -> ServedRank:
        place = settings.rank - 1
        return ServedRank(settings, self._addresses[place], self._processes[place])

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            process.kill()
            process.wait()


def _listening(address: str) -> "subprocess.Popen[bytes]":
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        number = listener.fileno()
        command = [sys.executable, "-m", "tests.executor.other_ranks", str(number)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(number,))


class RankRunner:
    """An engine over one checkpoint, of as many ranks as its settings say."""

    def __init__(
        self, path: Path, others: OtherRanks | None = None, executor: Executor | None = None, **settings: Any
    ) -> None:
        """`executor` is one that was started with such settings."""
        settings = {
            "dtype": "float32",
            "block_size": 4,
            "num_gpu_blocks_override": 256,
            "cpu_compute": "exact",
            "cpu_threads": 1,
            **settings,
        }
        self.asked = asked = EngineConfig.from_flat(model=str(path), **settings)
        self.facts = read_model_facts(str(path))
        device = cpu_facts()
        self.drafter = plan_drafter(asked, path, self.facts, device)
        self.resolved = resolve(asked, self.facts, device, self.drafter)
        self.weight_bytes: list[int] = []
        """Of every rank."""
        self.executor = executor or self._executor(path, asked, device, others)
        self.scheduler: Any = make_engine_scheduler(self.resolved)
        self.loop = EngineLoop(self.scheduler, self.executor)
        self._next = 0

    def _executor(self, path: Path, asked: EngineConfig, device: DeviceFacts, others: OtherRanks | None) -> Executor:
        if others is None:
            worker = start_worker(path, self.resolved, device=torch.device("cpu"))
            self.weight_bytes = [worker.weight_bytes]
            return inline(worker)
        with TemporaryDirectory() as folder:
            meeting = f"{folder}/meeting"
            ranks = self.resolved.num_ranks
            processes = [
                others.start(RankSettings(rank, str(path), asked, device, meeting, 0, RankPlace(rank, ranks)))
                for rank in range(1, ranks)
            ]
            with closing_on_failure(processes):
                first, _, _ = start_first(path, self.resolved, meeting, RankPlace(0, ranks), processes)
            self.weight_bytes = [
                first.worker.weight_bytes,
                *(process.wait_until_ready().weight_bytes for process in processes),
            ]
            return ProcessExecutor(first, processes, None, self.resolved)

    def run(
        self,
        prompts: list[list[int]],
        count: int,
        adapters: Sequence[AdapterRef | None] = (None,),
        media: Sequence[tuple[MediaItem, ...]] = ((),),
        **params: Any,
    ) -> list[list[int]]:
        """`count` tokens for each prompt, greedy ones unless `params` say otherwise; `adapters`, and the `media` of
        prompts, are used in turn."""
        chosen = SamplingParams(max_tokens=count, ignore_eos=True, detokenize=False, **{"temperature": 0.0, **params})
        requests = []
        for prompt, adapter, items in zip(prompts, cycle(adapters), cycle(media), strict=False):
            variant = self.facts.spec.kv_variant(len(prompt))
            given = Prompt(tuple(prompt), media_keys(items), adapter)
            requests.append(Request(id=f"r{self._next}", prompt=given, params=chosen, kv_variant=variant, media=items))
            self._next += 1
            self.loop.add(requests[-1])
        tokens: dict[str, list[int]] = {request.id: [] for request in requests}
        while self.loop.has_work:
            update, _ = self.loop.step()
            for seq, token in zip(update.sequences, update.tokens, strict=True):
                tokens[seq.request.id].append(token)
        return [tokens[request.id] for request in requests]


def logprobs_found(
    runner: RankRunner, prompts: list[list[int]], media: Sequence[tuple[MediaItem, ...]] = ((),)
) -> list[float]:
    """Of each prompt's tokens, and of four that follow."""
    values: list[float] = []
    read = runner.scheduler.update

    def reading(result: StepResult) -> StepUpdate:
        values.extend(each.logprob for drawn in result.logprobs.values() for each in drawn)
        for span in result.prompt_logprobs.values():
            values.extend(each.logprob for each in span.found)
        return read(result)

    runner.scheduler.update = reading  # type: ignore[method-assign]
    runner.run(prompts, 4, media=media, logprobs=3, prompt_logprobs=2)
    return sorted(values)


@contextmanager
def running(
    path: Path, others: OtherRanks | None = None, executor: Executor | None = None, **settings: Any
) -> Iterator[RankRunner]:
    runner = RankRunner(path, others, executor, **settings)
    try:
        yield runner
    finally:
        runner.loop.close()
