"""The measurement of a server: repeats of a load, and sweeps over loads. Prints nothing; whoever calls it watches."""

import asyncio
import gc
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import uvloop

from quire.bench.arrivals import random_arrivals, replayed_arrivals
from quire.bench.datasets.choose import make_requests
from quire.bench.datasets.dataset_config import DatasetConfig, PromptForm
from quire.bench.endpoint import Endpoint, parse_extra
from quire.bench.first_model import first_model
from quire.bench.gauges import GaugePoint, GaugeWatch
from quire.bench.http.address import parse_address
from quire.bench.http.client import Client
from quire.bench.load_config import LoadConfig
from quire.bench.load_run import Interrupted, OnRecord, run_load
from quire.bench.objectives import Objectives
from quire.bench.planned import PlannedRequest
from quire.bench.record import RequestRecord
from quire.bench.report import LoadPoint
from quire.bench.run_summary import measures, summarize
from quire.bench.sender import Sender
from quire.bench.server_target import TargetConfig
from quire.bench.vocabulary import Vocabulary
from quire.core.errors import ConfigError
from quire.core.http_connection import Clock

T = TypeVar("T")
Watch = Callable[[str, int], OnRecord]
"""Told what begins and how many requests it has; returns who is told of each record."""


class ServeBench:
    """One server under the requests of one dataset."""

    def __init__(
        self,
        target: TargetConfig,
        dataset: DatasetConfig,
        objectives: Objectives,
        watch: Watch,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        self._target = target
        self._dataset = dataset
        self._objectives = objectives
        self._watch = watch
        self._clock = clock
        self._address = parse_address(target.url)
        self._numbers = count()
        self._fresh = secrets.token_hex(8)
        self.was_interrupted = False
        """Whether someone stopped the last load; what had ended by then was measured."""
        self.model = target.model or self._first_model()
        self._vocabulary = self._open_vocabulary()

    def measure(self, load: LoadConfig, repeats: int, name: str = "", value: float | None = None) -> LoadPoint:
        """Repeats of one load, each with random requests of its own: no other load has shown them to the server.

        An interrupted one has fewer runs than were asked for, perhaps none.
        """
        runs: list[list[RequestRecord]] = []
        summaries = []
        for repeat in range(repeats):
            number = next(self._numbers)
            requests = make_requests(self._dataset, self._vocabulary, self._usual_form(), number, self._salt(load))
            label = " ".join(part for part in (name, f"run {repeat + 1}" if repeats > 1 else "") if part)
            warm = self._warmups(load) if repeat == 0 else []
            on_record = self._watch(label, len(requests))
            try:
                records, gauges = _run(self._one_run(load, requests, warm, number, on_record))
            except Interrupted as stopped:
                self.was_interrupted, records, gauges = True, stopped.records, []
            if records:
                runs.append(records)
                summaries.append(summarize(records, self._objectives, gauges))
            if self.was_interrupted:
                break
        return LoadPoint(value, measures(runs, summaries), summaries)

    async def _one_run(
        self,
        load: LoadConfig,
        requests: Sequence[PlannedRequest],
        warm: Sequence[PlannedRequest],
        number: int,
        on_record: OnRecord,
    ) -> tuple[list[RequestRecord], list[GaugePoint]]:
        target = self._target
        client = self._client()
        endpoint = Endpoint(target.endpoint, self.model, target.temperature, parse_extra(target.extra_body))
        sender = Sender(client, endpoint, self._vocabulary, load.timeout, self._clock)
        watch = GaugeWatch(client, sender.now, target.metrics_every)
        try:
            await self._warm_up(sender, warm, load)
            await watch.before()
            sender.begin()
            watch.begin()
            with _no_collections():
                records = await run_load(
                    sender, requests, self._arrivals(load, requests, number), load.concurrency, on_record
                )
            try:
                return records, await watch.end()
            except asyncio.CancelledError:
                raise Interrupted(records) from None
        finally:
            client.close()

    async def _warm_up(self, sender: Sender, warm: Sequence[PlannedRequest], load: LoadConfig) -> None:
        try:
            await run_load(sender, warm, [0.0] * len(warm), load.concurrency, lambda record: None)
        except Interrupted:
            raise Interrupted([]) from None  # nothing of it counts

    def _arrivals(self, load: LoadConfig, requests: Sequence[PlannedRequest], number: int) -> list[float]:
        speed = load.speed_for(self._dataset)
        if speed is None:
            burstiness = load.burstiness or 1.0
            return random_arrivals(len(requests), load.request_rate, burstiness, self._dataset.seed + number)
        moments = [request.arrival for request in requests if request.arrival is not None]
        if len(moments) != len(requests):
            raise ConfigError(
                "--replay-speed needs a dataset whose requests all have a moment (arrival_time); "
                "give a --request-rate instead."
            )
        return replayed_arrivals(moments, speed)

    def _warmups(self, load: LoadConfig) -> list[PlannedRequest]:
        """Random ones of a repeat that never comes: they must not show the server what it will be asked."""
        if not load.warmup:
            return []
        alike = self._dataset if self._dataset.dataset == "random" else DatasetConfig()
        wanted = replace(alike, num_requests=load.warmup)
        return make_requests(wanted, self._vocabulary, self._usual_form(), 1_000_000, self._salt(load))

    def _salt(self, load: LoadConfig) -> str:
        return self._fresh if load.fresh_prompts else ""

    def _usual_form(self) -> PromptForm:
        return "text" if self._target.endpoint == "chat" else "ids"

    def _open_vocabulary(self) -> Vocabulary:
        path = self._target.tokenizer_path(self.model)
        if path is None:
            return Vocabulary()
        from quire.text.load import load_tokenizer

        return Vocabulary(load_tokenizer(path))

    def _client(self) -> Client:
        key = self._target.api_key
        return Client(self._address, {} if key is None else {"Authorization": f"Bearer {key}"}, self._clock)

    def _first_model(self) -> str:
        async def ask() -> str:
            client = self._client()
            try:
                return await first_model(client, self._target.url)
            finally:
                client.close()

        return _run(ask())


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@contextmanager
def _no_collections() -> Iterator[None]:
    """A collection in the middle would be taken for the server's pause."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
