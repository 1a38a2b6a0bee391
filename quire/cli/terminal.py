"""The terminal of a chat: reads lines with editing and history, writes answers to standard output, remarks apart."""

import os
import sys

_DIM, _BOLD, _PLAIN = "\033[2m", "\033[1m", "\033[0m"


class Terminal:
    """Standard output carries answers alone unless a person is sitting there."""

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive
        self._colored = interactive and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._edited = interactive and _enable_line_editing()

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

    def answer(self, piece: str) -> None:
        print(piece, end="", flush=True)

    def end_answer(self) -> None:
        print("\n" if self.interactive else "", flush=True)

    def say(self, remark: str) -> None:
        """Something from the program, not from the model."""
        if self.interactive:
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
