"""Executor: how an engine reaches its workers."""

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Protocol

from quire.core.adapter import AdapterRef
from quire.core.carried_blocks import CarriedBlocks
from quire.core.errors import ConfigError
from quire.core.plan import StepPlan
from quire.core.request import Request
from quire.core.result import StepResult

if TYPE_CHECKING:
    from quire.core.expert_load import CacheCounts, ExpertLoad
    from quire.core.stats import RankBalance

SleepLevel = Literal[1, 2]
"""1: weights go to host memory, or stay in their file where they are mapped from one. 2: everything is dropped, and
read from the checkpoint again."""


class StepHandle(ABC):
    """A step that was given to the workers."""

    @abstractmethod
    def result(self) -> StepResult:
        """Wait for the step and return its result; raises what the step raised."""


class HostedAdapter(Protocol):
    """A LoRA adapter in host memory, checked and ready to be copied to the device."""

    @property
    def num_pages(self) -> int: ...


class Executor(ABC):
    """Takes plans in order. `execute` returns before the step has run where the workers are asynchronous."""

    max_in_flight: int
    """Steps the engine may have under way, 1 or 2: with 1 each is read before the next is planned."""

    @abstractmethod
    def execute(self, plan: StepPlan) -> StepHandle:
        """Start a step; raises an OutOfDeviceMemory, at once or by its result, where the device is full."""

    def prepare(self, request: Request) -> "Future[None] | None":
        """Begin to load what this request needs and others do not; None: it can run at once."""
        return None

    def fetch_adapter(self, ref: AdapterRef) -> "Future[Any]":
        """Begin to read an adapter into host memory, unless it is there. The future has a HostedAdapter, or fails with
        what is wrong with it."""
        raise NotImplementedError("this executor has no adapters")  # abstract

    def place_adapter(self, hosted: HostedAdapter, slot: int, pages: list[int]) -> "Future[None]":
        """Begin to copy it to these pages, beside steps that use others. Nobody uses them until the future is done."""
        raise NotImplementedError("this executor has no adapters")  # abstract

    def hosted_adapters(self) -> int:
        """Adapters in host memory."""
        return 0

    def hosted_adapter_keys(self) -> list[str]:
        """Which they are, the last used first, but for those that are still being read."""
        return []

    def expert_load(self) -> "ExpertLoad | None":
        """How often tokens have chosen each expert since the start; None: there are none, or nobody counts."""
        return None

    def rank_balance(self) -> "RankBalance | None":
        """How evenly choices of experts lay on ranks, where experts have copies; None: they have none, or it is not
        known yet."""
        return None

    def expert_cache(self) -> "CacheCounts | None":
        """How often experts were on the device that steps asked for; None: all are always there."""
        return None

    def carried_blocks(self, num_heads: int = 1) -> CarriedBlocks:
        """The device's KV blocks, for whoever carries them elsewhere; `num_heads` are the KV heads of all ranks, where
        there are several.

        Raises a ConfigError where that cannot be.
        """
        raise ConfigError("this executor's KV cannot be sent to other engines")

    def warm_up(self) -> bool:
        """Do one piece of the warm-up, while there are no requests; False when nothing is left."""
        return False

    def sleep(self, level: SleepLevel) -> None:
        """Give memory back while there are no requests, until `wake_up`; KV is lost. May go from 1 to 2."""
        raise NotImplementedError("this executor does not sleep")  # abstract

    def wake_up(self) -> None:
        """Be as after the start. Raises where the device has no room any more."""
        raise NotImplementedError("this executor does not sleep")  # abstract

    @abstractmethod
    def device_memory(self) -> tuple[int, int]:
        """Bytes in use on the device and bytes it has; zeros where the device is the CPU."""

    @abstractmethod
    def reset(self) -> None:
        """A step threw and the scheduler has taken back all rows: forget them. Raises when the device is lost."""

    @abstractmethod
    def close(self) -> None:
        """Free the device. Safe to call twice."""
