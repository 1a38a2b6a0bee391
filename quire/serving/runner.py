"""Runner: the loop of an engine's process. Messages in, steps, one report out."""

import os
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from quire.core.errors import QuireError, RequestTooLarge
from quire.core.sequence import Sequence
from quire.engine.kv_exchange import KVExchange
from quire.engine.loop import EngineLoop
from quire.engine.start import start_loop
from quire.engine.start_exchange import start_exchange
from quire.executor.base import SleepLevel
from quire.kvcache.transfer.nixl_carrier import require_nixl
from quire.models.loading.locate import locate
from quire.observe.start_clock import StartClock
from quire.scheduler.intake import StepUpdate
from quire.serving.block_runs import block_runs
from quire.serving.channel import Channel
from quire.serving.messages import (
    AskAdapters,
    AskBlocks,
    AskCheck,
    AskExperts,
    ChildSettings,
    Close,
    End,
    EndProfile,
    FromEngine,
    Hold,
    Profile,
    PromptNews,
    Pull,
    Refused,
    Report,
    Resume,
    SequenceNews,
    Sleep,
    Slept,
    Started,
    Submit,
    ToEngine,
    WakeUp,
    Weights,
)
from quire.serving.probe import Probe, check_books
from quire.serving.profiler import StepProfiler
from quire.serving.tls import tls_context
from quire.text.labels import only_pools

SLOW_READER = "reader"
"""The reason for which the front has a request held."""
_IDLE_MS = 1000
"""An engine with nothing to do says so this often: health is about progress."""
_HEARING_SECONDS = 0.004
"""What taking in messages may take between two steps of running streams: a prompt of 16,000 tokens takes one or two
milliseconds."""
_COPYING_MS = 5
"""An idle engine looks this often at what it writes to disk."""
_HELD_MS = 50
"""Deadlines of requests that are all held are looked at this often."""


@dataclass(frozen=True, slots=True)
class Naps:
    """When an engine sleeps by itself, and how deeply."""

    after: float | None = None
    """Seconds without requests; None: never."""
    level: SleepLevel = 1


NO_NAPS = Naps()


class Runner:
    """One engine and the way to its client."""

    def __init__(
        self,
        loop: EngineLoop,
        started: Started,
        channel: Channel,
        exchange: KVExchange | None = None,
        naps: Naps = NO_NAPS,
    ) -> None:
        """`exchange` is its way to the KV of other engines, where it has one; `naps` say when it sleeps by itself."""
        self.started = started
        self._exchange = exchange
        self._naps = naps
        self._busy_at = time.monotonic()
        self._warmed_up = 0
        """How often it had woken up when it was last warm."""
        self._to_sleep: deque[SleepLevel] = deque()
        """Levels at which it was asked to sleep, and is not yet."""
        self._loop = loop
        self._channel = channel
        self._probe = Probe(loop, exchange)
        self._profiler = StepProfiler()
        self._accepted: list[str] = []
        self._refused: list[Refused] = []
        self._closing = False
        self._unheard: deque[ToEngine] = deque()
        """Messages that came and wait for a step to pass."""
        self._is_warm = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            Submit: self._submit,
            End: self._end,
            Hold: self._hold,
            Resume: self._resume,
            Weights: self._weigh,
            Pull: self._pull,
            AskBlocks: self._ask_blocks,
            AskExperts: self._ask_experts,
            AskAdapters: self._ask_adapters,
            AskCheck: self._ask_check,
            Profile: self._profile,
            EndProfile: self._end_profile,
            Sleep: self._sleep,
            WakeUp: self._wake_up,
            Close: self._close,
        }

    def run(self) -> None:
        """Until told to close."""
        self._report(StepUpdate([], []), [])  # what there is, before there is anything to do
        while not self._closing:
            self._hear()
            self._exchange_kv()
            update, ended = StepUpdate([], []), list[Sequence]()
            if self._loop.has_work:
                with self._profiler:
                    update, ended = self._loop.step()
                self._tell_of_profile()
                self._busy_at = time.monotonic()
                self._exchange_kv(ended)
            elif not self._is_warm:
                self._is_warm = not self._loop.warm_up()
            else:
                self._loop.tend()
                self._sleep_if_idle()
            self._report(update, ended)
            self._go_to_sleep()
        if self._exchange is not None:
            self._exchange.close()
        self._loop.close()  # workers in processes of their own end before this one does

    # -- messages ----------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take in what has come; a burst of long prompts is spread over steps, so that streams keep their pace."""
        self._unheard.extend(self._channel.receive(0 if self._unheard else self._patience()))
        end = time.monotonic() + _HEARING_SECONDS
        while self._unheard:
            message = self._unheard.popleft()
            self._handlers[type(message)](message)
            if time.monotonic() > end and self._loop.scheduler.running:
                return

    def _patience(self) -> int:
        """Milliseconds to wait for a message."""
        if self._loop.scheduler.can_advance:
            return 0
        if self._loop.is_preparing:
            return 0  # the loop itself waits, for a moment at a time
        if self._loop.has_work:
            return _HELD_MS
        if not self._is_warm:
            return 0
        return _COPYING_MS if self._loop.is_copying else _IDLE_MS

    def _submit(self, message: Submit) -> None:
        request = msgspec.structs.replace(message.request, arrival=time.monotonic() - message.age)
        try:
            if request.pooling is None and not self.started.generates:
                raise QuireError("the model reads texts and generates none")
            self._loop.add(request)
            self._note_waking()
        except QuireError as error:
            too_large = isinstance(error, RequestTooLarge)
            self._refused.append(Refused(request.id, str(error), getattr(error, "field", None), too_large))
        else:
            self._accepted.append(request.id)

    def _end(self, message: End) -> None:
        for seq in self._loop.scheduler.sequences_of(message.request_id):
            if message.index is None or seq.index == message.index:
                self._loop.end(seq, message.status)

    def _hold(self, message: Hold) -> None:
        self._loop.holds.hold(message.request_id, SLOW_READER)

    def _resume(self, message: Resume) -> None:
        self._loop.holds.resume(message.request_id, SLOW_READER)

    def _pull(self, message: Pull) -> None:
        if self._exchange is not None:
            self._loop.wake_up()  # what comes needs room on the device
            self._note_waking()
            self._exchange.pull(message.request, message.source, message.is_computing)

    def _exchange_kv(self, ended: list[Sequence] | None = None) -> None:
        if self._exchange is not None:
            self._exchange.ended(ended or ())
            self._exchange.advance(self._loop.figures)

    def _weigh(self, message: Weights) -> None:
        self._loop.scheduler.weigh_tenants(message.of_tenants)

    def _ask_blocks(self, message: AskBlocks) -> None:
        self._send(block_runs(*self._loop.scheduler.kv_of_ranks))

    def _ask_experts(self, message: AskExperts) -> None:
        self._send(self._probe.experts())

    def _ask_adapters(self, message: AskAdapters) -> None:
        self._send(self._probe.adapters())

    def _ask_check(self, message: AskCheck) -> None:
        self._send(check_books(self._loop))

    def _profile(self, message: Profile) -> None:
        self._profiler.begin(message.steps, message.path)
        self._tell_of_profile()

    def _end_profile(self, message: EndProfile) -> None:
        self._profiler.end(message.path)
        self._tell_of_profile()

    def _tell_of_profile(self) -> None:
        done = self._profiler.finished()
        if done is not None:
            self._send(done)

    def _sleep(self, message: Sleep) -> None:
        self._to_sleep.append(2 if message.level == 2 else 1)

    def _go_to_sleep(self) -> None:
        """As it was asked to, once a step has released the rows of requests that have ended."""
        while self._to_sleep:
            if why := self._why_awake(self._to_sleep[0]):
                self._to_sleep.popleft()
                self._send(Slept(self._loop.sleep_level, why))
            elif self._loop.has_work:
                return
            else:
                self._loop.sleep(self._to_sleep.popleft())
                self._tell_of_sleep()

    def _wake_up(self, message: WakeUp) -> None:
        self._loop.wake_up()
        self._note_waking()
        self._tell_of_sleep()

    def _why_awake(self, level: SleepLevel) -> str:
        """What keeps it from sleeping; empty: nothing."""
        if live := len(self._loop.scheduler.live_requests):
            return f"{live} requests are live"
        if self._exchange is None:
            return ""
        if level == 2:
            return "an engine that exchanges KV with others keeps its blocks, so it sleeps at level 1 only"
        if self._exchange.stays_awake:
            return "an engine whose memory others read (--kv-carrier nixl) does not sleep"
        return "KV is on its way to or from another engine" if self._exchange.holds_blocks else ""

    def _tell_of_sleep(self) -> None:
        self._send(Report(self._probe.stats()))  # whoever asks about sleep next is to hear of it
        self._send(Slept(self._loop.sleep_level))

    def _note_waking(self) -> None:
        """Who wakes up has work soon, and graphs to capture when it has none."""
        if self._loop.num_wakes != self._warmed_up:
            self._warmed_up, self._is_warm = self._loop.num_wakes, False
            self._busy_at = time.monotonic()

    def _sleep_if_idle(self) -> None:
        naps = self._naps
        if naps.after is None or self._loop.sleep_level or self._loop.is_copying:
            return
        if time.monotonic() - self._busy_at >= naps.after and not self._why_awake(naps.level):
            self._loop.sleep(naps.level)
            self._send(Report(self._probe.stats()))

    def _close(self, message: Close) -> None:
        self._closing = True

    # -- reports -----------------------------------------------------------------------------------------------

    def _report(self, update: StepUpdate, ended: list[Sequence]) -> None:
        news = _news(update, ended)
        prompts = [PromptNews(seq.request.id, span) for seq, span in update.prompt_logprobs]
        if not (news or prompts or self._accepted or self._refused or self._probe.is_due):
            return
        self._send(Report(self._probe.stats(), news, self._accepted, self._refused, prompts))
        self._accepted, self._refused = [], []

    def _send(self, message: FromEngine) -> None:
        self._channel.send(message)


def _news(update: StepUpdate, ended: list[Sequence]) -> list[SequenceNews]:
    now = time.monotonic()
    tokens: dict[int, tuple[Sequence, list[int]]] = {}
    for seq, token in zip(update.sequences, update.tokens, strict=True):
        tokens.setdefault(seq.id, (seq, []))[1].append(token)
    for seq in ended:
        tokens.setdefault(seq.id, (seq, []))
    return [
        SequenceNews(
            seq.request.id,
            seq.index,
            sampled,
            seq.status if seq.is_finished else None,
            update.logprobs[seq.id][: len(sampled)] if seq.id in update.logprobs else None,
            now - seq.first_granted if seq.num_output == len(sampled) and seq.first_granted is not None else None,
            seq.num_cached,
            seq.failure,
            seq.is_blameless,
            update.pooled.get(seq.id),
        )
        for seq, sampled in tokens.values()
    ]


def start_runner(settings: ChildSettings, channel: Channel, clock: StartClock | None = None) -> Runner:
    """Load the model and put a runner around it; `clock` has what was done before."""
    asked = settings.config
    clock = clock or StartClock()
    if asked.server.kv_carrier == "nixl":
        require_nixl()  # before anything is loaded
    path = locate(asked.model.model, asked.model.revision)
    clock.done("finding the model")
    started = start_loop(
        asked,
        path,
        seed=settings.seed,
        tenant_weights=settings.tenant_weights,
        memory_share=settings.memory_share,
        clock=clock,
    )
    exchange = None
    if settings.kv_listen:
        exchange = start_exchange(
            started,
            path,
            settings.kv_listen,
            settings.kv_secret,
            channel.wake,
            _kv_tls(settings),
            asked.server.engine_ca_file,
            asked.server.kv_carrier,
        )
    limits = started.resolved.limits
    told = Started(
        limits.max_model_len,
        limits.max_num_seqs * started.resolved.attention_ranks,
        started.resolved.kv.block_size,
        started.facts.spec.hidden_size,
        generates=not only_pools(started.facts),
        pid=os.getpid(),
        seconds=list(clock.parts),
        role=settings.role,
        kv_address="" if exchange is None else exchange.sender.address,
    )
    naps = Naps(asked.server.sleep_after, 2 if asked.server.sleep_level == 2 else 1)
    return Runner(started.loop, told, channel, exchange, naps)


def _kv_tls(settings: ChildSettings) -> ssl.SSLContext | None:
    return tls_context(settings.config.server) if settings.kv_listen.startswith("tls:") else None
