"""The terminal of a chat: reads lines with editing and history, writes answers to standard output, remarks apart.

Colours tell the parts of a chat apart for a person, unless NO_COLOR is set; a pipe gets none.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

from quire.cli.word_wrap import WordWrap

_PLAIN = "\033[0m"
_PERSON, _MARK = "\033[36m", "\033[1;36m"
"""Cyan, as bright as the terminal's own text: what the person types, and the mark before it."""
_THOUGHT, _CALL, _REMARK, _MISTAKE = "\033[2;3m", "\033[35m", "\033[2m", "\033[33m"
"""Answers have the terminal's own colour, which is the one chosen for reading."""


class Terminal:
    """Standard output carries answers alone unless a person is sitting there."""

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive
        self._colored = interactive and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._edited = interactive and _enable_line_editing()
        self._wrap = WordWrap(1)
        self._last: Literal["thought", "call", "answer"] | None = None
        """What of this answer stands on the screen last."""

    def read(self) -> str | None:
        """The next message, of several lines where each but the last ends in a backslash; None at the end of input."""
        lines: list[str] = []
        while True:
            line = self._line("... " if lines else ">>> ")
            if line is None:
                return "\n".join(lines) if lines else None
            if not (self.interactive and line.endswith("\\")):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Around the pieces of one answer. What is typed meanwhile waits, and does not show up in the middle."""
        self._wrap = WordWrap(shutil.get_terminal_size().columns)
        try:
            with _without_echo() if self.interactive else nullcontext():
                yield
        finally:
            self._last = None
            print("\n" if self.interactive else "", flush=True)

    def think(self, piece: str) -> None:
        """What the model thinks before it answers: for a person to see, and nothing that a pipe carries."""
        if self.interactive:
            self._last = "thought"
            self._write(self._wrap.push(piece), _THOUGHT)

    def call(self, piece: str, *, begins: bool) -> None:
        """A piece of a tool call, its name first."""
        if begins:
            piece = ("\n\n" if self._last is not None else "") + f"→ {piece} "
        self._last = "call"
        self._write(self._wrap.push(piece) if self.interactive else piece, _CALL)

    def answer(self, piece: str) -> None:
        if self._last in ("thought", "call"):
            piece = "\n\n" + piece
        self._last = "answer"
        self._write(self._wrap.push(piece) if self.interactive else piece)

    def say(self, remark: str) -> None:
        """Something from the program, not from the model."""
        self._note(remark, _REMARK)

    def complain(self, mistake: str) -> None:
        """Something that the person should have done otherwise."""
        self._note(mistake, _MISTAKE)

    def _note(self, text: str, style: str) -> None:
        if self.interactive:
            self._write(_wrapped(text, shutil.get_terminal_size().columns), style)
            print(flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _write(self, text: str, style: str = "") -> None:
        print(f"{style}{text}{_PLAIN}" if style and self._colored else text, end="", flush=True)

    def _line(self, mark: str) -> str | None:
        if not self.interactive:
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        try:
            return input(self._prompt(mark))
        except EOFError:
            print()
            return None
        finally:
            if self._colored:
                print(_PLAIN, end="", flush=True)

    def _prompt(self, mark: str) -> str:
        if not self._colored:
            return mark
        # readline must know which characters take no room, or it wraps long lines in the wrong place
        start, end = ("\001", "\002") if self._edited else ("", "")
        return f"{start}{_MARK}{end}{mark}{start}{_PLAIN}{_PERSON}{end}"


def _enable_line_editing() -> bool:
    """Importing readline is what gives `input` its editing; some builds of Python have none."""
    try:
        import readline
    except ImportError:
        return False
    readline.set_auto_history(True)
    return True


@contextmanager
def _without_echo() -> Iterator[None]:
    import termios

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    silent = [*before]
    silent[3] = before[3] & ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, before)


def _wrapped(text: str, width: int) -> str:
    lines = (textwrap.wrap(line, width, replace_whitespace=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join("\n".join(line) for line in lines)
