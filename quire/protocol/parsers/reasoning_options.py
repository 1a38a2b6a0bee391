"""ReasoningOptions: what a request says about the model's thinking, and how its chat template is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quire.core.errors import InvalidRequest

_SWITCHES = ("enable_thinking", "thinking")
"""What templates call the variable that turns thinking on and off."""


@dataclass(frozen=True, slots=True)
class ReasoningOptions:
    """Every field may be left open."""

    effort: str | None = None
    """A word for how much; none: not at all."""
    enabled: bool | None = None
    budget: int | None = None
    """Tokens of thinking at most."""
    is_shown: bool = True
    """Whether the thinking is part of the answer."""

    def variables(self, accepts: Callable[[str], bool]) -> dict[str, Any]:
        """For the chat template; `accepts` says of a variable whether it reads it."""
        switch = next((name for name in _SWITCHES if accepts(name)), None)
        found: dict[str, Any] = {}
        if self.enabled is not None and switch is not None:
            found[switch] = self.enabled
        if self.effort == "none" and switch is not None:
            found[switch] = False
        elif self.effort is not None and accepts("reasoning_effort"):
            found["reasoning_effort"] = self.effort
        elif self.effort is not None:
            raise InvalidRequest(
                f"the model's chat template does not read 'reasoning_effort', so {self.effort!r} would change nothing; "
                "leave it out of the request",
                field="reasoning_effort",
            )
        return found
