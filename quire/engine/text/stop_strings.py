"""Finding stop strings in a text that comes in parts, whatever the parts.

All strings are looked for at once (Aho and Corasick, 1975), so the cost is that of the new text alone, and exactly the
characters that may still become a stop string are held back.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """The stop string that ended a text, and where it stood in it, in characters."""

    stop: str
    start: int
    end: int


@dataclass(slots=True)
class _Node:
    """The characters read so far that may still become a stop string; `depth` of them."""

    depth: int
    next: dict[str, "_Node"]
    shorter: "_Node | None" = None
    """The longest shorter beginning of a stop string that these characters end with; None at the root."""
    found: str | None = None
    """The longest stop string they end with."""


class StopStrings:
    """One sequence's text on its way to the client, up to the stop string that is complete first.

    When two are complete at the same character, it is the longer one.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        """`include_stop`: the stop string itself is given out too. Empty strings are never found."""
        self._root = _automaton(stops)
        self._node = self._root
        self._include_stop = include_stop
        self._held = ""
        self._read = 0
        self.match: StopMatch | None = None
        """Set once a stop string is complete; nothing is given out afterwards."""

    def push(self, text: str, *, may_stop: bool = True) -> str:
        """The text that may go out now. With `may_stop` false it all goes, and is not looked at later either."""
        if self.match is not None:
            return ""
        if not may_stop:
            held, self._held, self._node = self._held, "", self._root
            self._read += len(text)
            return held + text
        node = self._node
        for at, character in enumerate(text, start=1):
            while character not in node.next and node.shorter is not None:
                node = node.shorter
            node = node.next.get(character, node)
            if node.found is not None:
                return self._stop(node.found, self._held + text[:at], self._read + at)
        self._node = node
        self._read += len(text)
        seen = self._held + text
        out = seen[: len(seen) - node.depth]
        self._held = seen[len(out) :]
        return out

    def flush(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held, self._node = self._held, "", self._root
        return held

    def _stop(self, stop: str, seen: str, end: int) -> str:
        self.match = StopMatch(stop, end - len(stop), end)
        self._held = ""
        return seen if self._include_stop else seen[: len(seen) - len(stop)]


def _automaton(stops: Sequence[str]) -> _Node:
    root = _Node(0, {})
    for stop in stops:
        node = root
        for depth, character in enumerate(stop, start=1):
            node = node.next.setdefault(character, _Node(depth, {}))
        if stop:
            node.found = stop
    queue = deque((character, child, root) for character, child in root.next.items())
    while queue:
        character, node, parent = queue.popleft()
        shorter = parent.shorter
        while shorter is not None and character not in shorter.next:
            shorter = shorter.shorter
        node.shorter = root if shorter is None else shorter.next[character]
        node.found = node.found or node.shorter.found
        queue.extend((letter, child, node) for letter, child in node.next.items())
    return root
