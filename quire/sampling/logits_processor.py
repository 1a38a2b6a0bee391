"""LogitsProcessor: what a plugin of `quire.logits_processors` does to the logits of requests that name it. No torch.

The operator loads processors when an engine starts (`--logits-processors`); a request can only name one of those.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from quire.core.errors import InvalidRequest, PluginError
from quire.core.nearest import did_you_mean
from quire.core.plugins import GROUPS, load_plugin

if TYPE_CHECKING:
    import torch
    from torch import Tensor

GROUP = "quire.logits_processors"
FIELD = "logits_processor_args"


class LogitsProcessor(ABC):
    """Of one worker, for all of its rows. Its module imports no torch: a front loads it too, for `check`.

    What comes out for a place may depend on the arguments of its row and on the row's tokens before that place, and on
    nothing else: a place may be one behind a draft that proves wrong, a sequence may be preempted and admitted again,
    and an engine may take over from another, without anybody telling the processor.
    """

    can_be_captured: ClassVar[bool] = False
    """Whether `apply` may be part of a CUDA graph: it runs the same kernels on the same memory every time and nothing
    on the host. Steps with a row that asks for one that may not are launched one kernel at a time."""

    def __init__(self, vocab_size: int, max_rows: int, device: "torch.device") -> None:
        """Rows are numbered from 0 to `max_rows`, of which the last is nobody's."""
        self.vocab_size = vocab_size
        self.max_rows = max_rows
        self.device = device

    @classmethod  # noqa: B027 - optional
    def check(cls, arguments: Mapping[str, Any]) -> None:
        """Raise a ValueError that says what is wrong with a request's arguments; its client reads it."""

    @abstractmethod
    def admit(self, row: int, arguments: Mapping[str, Any], prompt: Sequence[int], output: Sequence[int]) -> None:
        """A sequence that asked for it takes a row; `output` is what it has drawn before, if it goes on."""

    def release(self, row: int) -> None:  # noqa: B027 - optional
        """A row is free again."""

    @abstractmethod
    def apply(self, logits: "Tensor", rows: "Tensor", positions: "Tensor", history: "Tensor") -> "Tensor":
        """Other logits for these, float32 [n, vocabulary], which are its own to change.

        `rows` and `positions`, int64 [n], are whose they are and where in its sequence (prompt included) the token will
        stand; `history` int32 [rows, length] has the tokens of all rows, those of a row before that position. There are
        places of rows that did not ask, too: what is made of those is dropped. Nothing here may wait for the device.
        """


def load_processors(names: Sequence[str]) -> dict[str, type[LogitsProcessor]]:
    """The processors of these plugins."""
    return {name: _load(name) for name in names}


def _load(name: str) -> type[LogitsProcessor]:
    found = load_plugin(GROUP, name)
    if not (isinstance(found, type) and issubclass(found, LogitsProcessor)):
        raise PluginError(f"the {GROUPS[GROUP].adds} {name!r} is {found!r}, and must be a subclass of LogitsProcessor.")
    return found


def check_processor_args(given: Mapping[str, Mapping[str, Any]], loaded: Mapping[str, type[LogitsProcessor]]) -> None:
    """Raise InvalidRequest unless every processor that a request names is loaded and takes its arguments."""
    for name, arguments in given.items():
        if name not in loaded:
            there = f"loaded are {', '.join(loaded)}" if loaded else "none is loaded (--logits-processors)"
            raise InvalidRequest(
                f"{FIELD} names {name[:60]!r}, which is no logits processor here; {there}.{did_you_mean(name, loaded)}",
                field=FIELD,
            )
        try:
            loaded[name].check(arguments)
        except ValueError as error:
            raise InvalidRequest(f"{FIELD}.{name}: {error}", field=FIELD) from None
