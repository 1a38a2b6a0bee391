"""ReasoningPart: the thinking part of an output, as tokens, for a model that thinks before it answers."""

import msgspec

from quire.core.checks import MAX_TOKENS, check_int, check_token_ids, invalid

MAX_MARKER_TOKENS = 64
"""Of a marker such as `</think>`; one token in most vocabularies."""


class ReasoningPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an output thinks: from `start` to `end`, before anything else.

    A grammar binds only what stands behind it. An output that begins with anything but `start`, where the prompt has
    not opened the part, has none.
    """

    start: tuple[int, ...]
    """Tokens that open it, such as those of `<think>`."""
    end: tuple[int, ...]
    """Tokens that close it, such as those of `</think>`."""
    is_open: bool = False
    """The prompt already ends within it."""
    budget: int | None = None
    """At most so many tokens between `start` and `end`; then `end` is forced. None: as many as it likes."""

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            value = getattr(self, name)
            if isinstance(value, list):
                msgspec.structs.force_setattr(self, name, tuple(value))
            check_token_ids(f"reasoning.{name}", getattr(self, name), MAX_MARKER_TOKENS, at_least=1)
        if not isinstance(self.is_open, bool):
            raise invalid("reasoning.is_open", self.is_open, "true or false")
        if self.budget is not None:
            check_int("reasoning.budget", self.budget, 0, MAX_TOKENS)
