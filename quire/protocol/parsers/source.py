"""Source: a text that comes in pieces of any size, read as if it had come at once.

Every way to read waits until what it decides on is certain, so that no decision depends on where the text was cut.
"""

from collections.abc import Sequence

from quire.protocol.parsers.parts import Kind, Malformed, Part, Reader

_BLANK = " \t\r\n"


class Source:
    """The unread text. `at` is where reading goes on; `mark`, where it may be taken back to."""

    def __init__(self, whole: frozenset[str] = frozenset()) -> None:
        """`whole` are markers that are one token each, so that no text ends within one."""
        self.text = ""
        self.at = 0
        self.mark: int | None = None
        self._whole = whole
        self._is_over = False
        self._is_cut = False

    def push(self, text: str) -> None:
        """More text has come."""
        kept = self.at if self.mark is None else min(self.mark, self.at)
        self.text = self.text[kept:] + text
        self.at -= kept
        if self.mark is not None:
            self.mark -= kept

    def close(self, *, is_cut: bool) -> None:
        """No more text will come. `is_cut`: there would have been more, so that a marker may have been cut in two."""
        self._is_over = True
        self._is_cut = is_cut

    @property
    def is_read_out(self) -> bool:
        """Whether all text has come and was read."""
        return self._is_over and self.at >= len(self.text)

    @property
    def is_cut_off(self) -> bool:
        """Whether all text was read, and the rest of what it began is missing."""
        return self._is_cut and self.is_read_out

    def more(self) -> Reader[bool]:
        """Wait for a character; false when there is none left."""
        while self.at >= len(self.text):
            if self._is_over:
                return False
            yield None
        return True

    def space(self) -> Reader[str]:
        """All blank space that is next."""
        found = ""
        while (yield from self.more()) and self.text[self.at] in _BLANK:
            found += self.text[self.at]
            self.at += 1
        return found

    def accept(self, *wanted: str) -> Reader[str | None]:
        """Read one of `wanted` where it is next; none may be the beginning of another. One that is cut in two is read
        too, and is nothing."""
        while True:
            left = self.text[self.at : self.at + max(map(len, wanted))]
            for each in wanted:
                if left.startswith(each):
                    self.at += len(each)
                    return each
            is_begun = any(each.startswith(left) for each in wanted)
            if self._is_over and self._is_cut and is_begun:
                self.at = len(self.text)
            if self._is_over or not is_begun:
                return None
            yield None

    def expect(self, *wanted: str) -> Reader[str]:
        """As `accept`; raises Malformed where none of `wanted` is next."""
        found = yield from self.accept(*wanted)
        if found is None:
            raise Malformed
        return found

    def word(self, others: str, longest: int) -> Reader[str]:
        """Letters, digits and `others` that are next; raises Malformed where there are more than `longest`."""
        found = ""
        while (yield from self.more()) and (self.text[self.at].isalnum() or self.text[self.at] in others):
            found += self.text[self.at]
            self.at += 1
            if len(found) > longest:
                raise Malformed
        return found

    def until(self, markers: Sequence[str], kind: Kind) -> Reader[str | None]:
        """Pass text on up to the first of `markers`, and read that; None where the text ends without one."""
        while True:
            start, marker = self._first(markers)
            held = self._held(markers, kind)
            # a marker that may have begun earlier, and is not complete, comes before one that is
            certain = min(start, len(self.text) - held)
            if certain > self.at:
                piece, self.at = self.text[self.at : certain], certain
                yield Part(kind, piece)
            if marker is not None and start == certain:
                self.at += len(marker)
                return marker
            if self._is_over:
                self.at = len(self.text)
                return None
            yield None

    def _held(self, markers: Sequence[str], kind: Kind) -> int:
        """How many of the last characters are not passed on."""
        if not self._is_over or kind == "arguments":  # nobody can do anything with half a marker among those
            return _beginning(self.text, self.at, markers)
        # where a model ended by itself, half a marker is text like any other
        return _beginning(self.text, self.at, [each for each in markers if each not in self._whole] * self._is_cut)

    def _first(self, markers: Sequence[str]) -> tuple[int, str | None]:
        places = [(place, marker) for marker in markers if (place := self.text.find(marker, self.at)) >= 0]
        return min(places, default=(len(self.text), None), key=lambda found: found[0])


def _beginning(text: str, start: int, markers: Sequence[str]) -> int:
    """How many of the last characters may be the beginning of a marker."""
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text) - start), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest
