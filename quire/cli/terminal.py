"""The terminal of a chat: reads lines with editing and history, writes answers to standard output, remarks apart."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from quire.cli.word_wrap import WordWrap

_DIM, _BOLD, _PLAIN = "\033[2m", "\033[1m", "\033[0m"


class Terminal:
    """Standard output carries answers alone unless a person is sitting there."""

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive
        self._colored = interactive and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._edited = interactive and _enable_line_editing()
        self._wrap = WordWrap(1)
        self._has_thought = False
        """Whether thinking stands on the screen, and the answer is still to come."""

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
            self._has_thought = False
            print("\n" if self.interactive else "", flush=True)

    def think(self, piece: str) -> None:
        """What the model thinks before it answers: dimmed for a person, and nothing that a pipe carries."""
        if self.interactive:
            shown, self._has_thought = self._wrap.push(piece), True
            print(f"{_DIM}{shown}{_PLAIN}" if self._colored else shown, end="", flush=True)

    def answer(self, piece: str) -> None:
        if self._has_thought:
            self._has_thought = False
            piece = "\n\n" + piece
        print(self._wrap.push(piece) if self.interactive else piece, end="", flush=True)

    def say(self, remark: str) -> None:
        """Something from the program, not from the model."""
        if self.interactive:
            remark = _wrapped(remark, shutil.get_terminal_size().columns)
            print(f"{_DIM}{remark}{_PLAIN}" if self._colored else remark, flush=True)
        else:
            print(remark, file=sys.stderr, flush=True)

    def _line(self, mark: str) -> str | None:
        if not self.interactive:
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        try:
            return input(self._prompt(mark))
        except EOFError:
            print()
            return None

    def _prompt(self, mark: str) -> str:
        if not self._colored:
            return mark
        # readline must know which characters take no room, or it wraps long lines in the wrong place
        start, end = ("\001", "\002") if self._edited else ("", "")
        return f"{start}{_BOLD}{end}{mark}{start}{_PLAIN}{end}"


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
