"""The parent's end of the processes that render chat templates: started when needed, killed when they take too long."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from quire.core.child_pool import ChildPool
from quire.core.errors import InvalidRequest
from quire.core.framed_child import ChildDied

_CHILD = Path(__file__).with_name("template_child.py")
SIZE = 4
"""Conversations that are rendered at once; a slow one keeps no other waiting until there are as many as this."""
# Generous, for machines that are busy: the child counts its own processor time.
_WALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What rendering one conversation may cost."""

    cpu_seconds: float = 2.0
    memory_bytes: int = 1 << 30
    most_characters: int = 16_000_000
    most_source: int = 1_000_000
    """Characters of the template itself."""


class TemplateFailed(Exception):
    """The template did not give a text; `kind` is syntax, forbidden, refused, limit or failed."""

    def __init__(self, kind: str, message: str, line: int | None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.line = line


class TemplatePool:
    """Renders templates in processes of their own, one for each thread that uses it at a time."""

    def __init__(self, limits: TemplateLimits | None = None) -> None:
        self.limits = limits or TemplateLimits()
        self._children = ChildPool(
            _CHILD,
            size=SIZE,
            purpose="renders chat templates",
            cpu_seconds=self.limits.cpu_seconds,
            memory_bytes=self.limits.memory_bytes,
            wall_seconds=_WALL_SECONDS,
        )

    def names(self, source: str) -> frozenset[str]:
        """The variables a template asks for; fails where it cannot be compiled."""
        return frozenset(self._ask(source, None)["names"])

    def render(self, source: str, variables: Mapping[str, object]) -> str:
        """The text of the template with these variables."""
        return str(self._ask(source, dict(variables))["text"])

    def close(self) -> None:
        self._children.close()

    def _ask(self, source: str, variables: dict[str, object] | None) -> dict[str, Any]:
        limits = self.limits
        if len(source) > limits.most_source:
            too_long = f"it has {len(source):,} characters, {limits.most_source:,} are the most"
            raise TemplateFailed("limit", too_long, None)
        request: dict[str, object] = {
            "source": source,
            "variables": variables,
            "most_characters": limits.most_characters,
        }
        answer = self._exchange(_encoded(request))
        if "failure" in answer:
            raise TemplateFailed(answer["failure"], answer["message"], answer["line"])
        return answer

    def _exchange(self, frame: bytes) -> dict[str, Any]:
        try:
            return self._children.exchange(frame, msgspec.msgpack.decode)
        except ChildDied as died:
            raise TemplateFailed("limit", self._reason(died), None) from None

    def _reason(self, died: ChildDied) -> str:
        if died.ran_out_of_time:
            return f"it takes more than {self.limits.cpu_seconds:g} seconds"
        most = f"{self.limits.memory_bytes:,} bytes being the most"
        return f"it ends the process that renders it (status {died.code}), {most}"


def _encoded(request: dict[str, object]) -> bytes:
    try:
        return msgspec.msgpack.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(
            f"the conversation holds something a template cannot be given ({error}); send plain JSON.", field="messages"
        ) from None
