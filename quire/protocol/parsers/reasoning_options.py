"""ReasoningOptions: what a request says about the model's thinking, and how its chat template is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored

SWITCHES = ("enable_thinking", "thinking")
"""What templates call the variable that turns thinking on and off."""
_LONGEST_SHOWN = 64


def _strict() -> Ignored:
    return Ignored(strict=True)


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
    given: Mapping[str, Any] = field(default_factory=dict)
    """Variables that the request sets itself (chat_template_kwargs)."""
    names: Mapping[str, str] = field(default_factory=dict, compare=False)
    """What the API calls the fields above, where not as chats do."""
    ignored: Ignored = field(default_factory=_strict, compare=False)
    """Takes what the model has no use for."""

    def variables(self, accepts: Callable[[str], bool]) -> dict[str, Any]:
        """For the chat template; `accepts` says of a variable whether it reads it."""
        switch = next((name for name in SWITCHES if accepts(name)), None)
        found: dict[str, Any] = {}
        if self.enabled is not None and switch is not None:
            found[switch] = self.enabled
        elif self.enabled is not None and "enabled" in self.names:
            self._note("enabled", "enable_thinking")
        if self.effort is not None:
            found |= self._effort(switch, accepts("reasoning_effort"))
        for name, value in self.given.items():
            if name in SWITCHES and switch is not None:
                found[switch] = value
            elif accepts(name):
                found[name] = value
            else:
                self._note("given", name, f"chat_template_kwargs.{name}")
        return found

    def note_budget(self) -> None:
        """The model does not think as far as its chat template shows."""
        self.ignored.note(self._name("budget", "thinking_token_budget"), _no_thinking)

    def _effort(self, switch: str | None, accepted: bool) -> dict[str, Any]:
        if accepted and (switch is None or self.effort != "none"):
            return {"reasoning_effort": self.effort}
        if switch is not None:
            return {switch: self.effort != "none"}
        self._note("effort", "reasoning_effort")
        return {}

    def _note(self, own: str, variable: str, name: str | None = None) -> None:
        field = "chat_template_kwargs" if own == "given" else self._name(own, variable)
        self.ignored.note(
            name or field,
            lambda: InvalidRequest(
                f"the model's chat template does not read {variable[:_LONGEST_SHOWN]!r}; leave it out of the request",
                field=field,
            ),
        )

    def _name(self, own: str, usual: str) -> str:
        return self.names.get(own, usual)


def _no_thinking() -> InvalidRequest:
    return InvalidRequest(
        "a budget for thinking is given, and the model does not think as far as its chat template shows; "
        "leave it out, or start quire with --reasoning-parser",
        field="thinking_token_budget",
    )
