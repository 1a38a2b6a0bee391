"""docs/images/session.svg: a real session in a terminal, recorded and written as an animated picture.

Every command is run when this script is, in a terminal of its own. What it printed is shown when it printed it; only
waits of more than a second are shortened. The server has a free port, shown as 8000. The picture follows the reader's
light or dark colours, and shows the whole session where animations do not run.
"""

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

IMAGE = Path(__file__).resolve().parent.parent / "docs" / "images" / "session.svg"
COLUMNS = 92
SHOWN_PORT = "8000"
QUESTION = (
    """curl -s 127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d '{"model": "smollm2", """
    """"temperature": 0, "max_tokens": 44, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}' """
    """| grep -o '"content":"[^"]*"'"""
)
COMMANDS = (
    'quire complete "The planets of the solar system, in order, are" --max-tokens 28',
    "quire serve > server.log 2>&1 &",
    "curl -s --retry 60 --retry-delay 1 --retry-all-errors --fail 127.0.0.1:8000/ready",
    QUESTION,
    "curl -s 127.0.0.1:8000/metrics | grep -E '^quire_(generation_tokens_total|request_success_total.*length)'",
)
LONGEST_WAIT = 1.0
KEY_SECONDS = 0.035
KEYS_AT_ONCE = 3
PAUSE = 0.7
"""Seconds before a command is typed, and between its last key and its run."""
LAST_LOOK = 6.0
"""Seconds that the finished session stays."""
_ERASE = "\r\x1b[K"
"""How a line of progress goes away."""
_ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])")
_WIDTH, _HEIGHT, _TOP, _LEFT = 8.4, 19, 52, 20
_STYLE = """
.window{fill:#fbfaf7;stroke:#d9d4c7}text{fill:#2b2a27}.prompt{fill:#8a5a00}.typed{font-weight:600}.dot{fill:#d9d4c7}
@media (prefers-color-scheme:dark){.window{fill:#16181d;stroke:#343840}text{fill:#d7dae0}
.prompt{fill:#e5b567}.dot{fill:#343840}}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that came at one moment, on one row."""

    row: int
    column: int
    text: str
    kind: str
    moment: float
    end: float | None = None
    """When it was erased, where it was."""


class Screen:
    """Places text row by row, as a terminal does, and notes when each piece came."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.clock = 0.0
        self._row, self._column = 0, 0

    @property
    def rows(self) -> int:
        return 1 + max(piece.row for piece in self.pieces)

    def erase_line(self) -> None:
        self.pieces = [replace(each, end=self.clock) if each.row == self._row else each for each in self.pieces]
        self._column = 0

    def write(self, text: str, kind: str = "said") -> None:
        for part in re.findall(r"\n|[^\n]+", text):
            if part == "\n":
                self._row, self._column = self._row + 1, 0
                continue
            left = part
            while left:
                if self._column == COLUMNS:
                    self._row, self._column = self._row + 1, 0
                fits, left = left[: COLUMNS - self._column], left[COLUMNS - self._column :]
                if fits.strip():
                    self.pieces.append(Piece(self._row, self._column, fits, kind, self.clock))
                self._column += len(fits)

    def end_line(self) -> None:
        if self._column:
            self.write("\n")

    def type(self, command: str) -> None:
        self.end_line()
        self.write("$ ", "prompt")
        self.clock += PAUSE
        for start in range(0, len(command), KEYS_AT_ONCE):
            self.write(command[start : start + KEYS_AT_ONCE], "typed")
            self.clock += KEY_SECONDS * KEYS_AT_ONCE
        self.clock += PAUSE
        self.write("\n")


def run(command: str, screen: Screen) -> None:
    """Run a command in a terminal of its own, and write what it prints when it prints it."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(["bash", "-c", command], stdin=child, stdout=child, stderr=child)
    os.close(child)
    before = time.monotonic()
    while True:
        ready, _, _ = select.select([parent], [], [], 0.05)
        try:
            data = os.read(parent, 65536) if ready else b""
        except OSError:  # the terminal is closed
            break
        if ready and not data:
            break
        if data:
            now = time.monotonic()
            screen.clock += min(now - before, LONGEST_WAIT)
            before = now
            first, *rest = data.decode("utf-8", "replace").split(_ERASE)
            screen.write(_plain(first))
            for text in rest:
                screen.erase_line()
                screen.write(_plain(text))
    if process.wait():
        sys.exit(f"exit code {process.returncode}: {command}")
    os.close(parent)


def _plain(text: str) -> str:
    return _ESCAPE.sub("", text).replace("\r", "")


def record(folder: Path) -> Screen:
    """The whole session."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    os.environ |= {"QUIRE_PORT": port, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.chdir(folder)
    screen = Screen()
    server: subprocess.Popen[bytes] | None = None
    try:
        for command in COMMANDS:
            screen.type(command)
            if command.endswith("&"):
                with open("server.log", "wb") as log:
                    server = subprocess.Popen(["quire", "serve"], stdout=log, stderr=log)
            else:
                run(command.replace(SHOWN_PORT, port), screen)
    finally:
        if server is not None:
            server.send_signal(signal.SIGTERM)
            server.wait()
    return screen


def svg(screen: Screen) -> str:
    """An animation that repeats; every piece is hidden until its moment."""
    total = screen.clock + LAST_LOOK
    width, height = round(2 * _LEFT + COLUMNS * _WIDTH), _TOP + screen.rows * _HEIGHT + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img"><title>A session in a terminal: quire completes a text, then serves the model to curl</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="window" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10">'
        f'<animate id="loop" attributeName="rx" values="10;10" begin="0s;loop.end" dur="{total:.2f}s"/></rect>',
        *(f'<circle class="dot" cx="{22 + 20 * n}" cy="21" r="6"/>' for n in range(3)),
    ]
    for piece in screen.pieces:
        x, y = _LEFT + piece.column * _WIDTH, _TOP + piece.row * _HEIGHT
        length = len(piece.text) * _WIDTH
        kind = "" if piece.kind == "said" else f' class="{piece.kind}"'
        hide = f'<set attributeName="visibility" to="hidden" begin="loop.begin" dur="{max(piece.moment, 0.01):.2f}s"/>'
        if piece.end is not None:
            kind = ' visibility="hidden"'
            shown = f'begin="loop.begin+{piece.moment:.2f}s" dur="{piece.end - piece.moment:.2f}s"'
            hide = f'<set attributeName="visibility" to="visible" {shown}/>'
        lines.append(f'<text{kind} x="{x:.1f}" y="{y}" textLength="{length:.1f}">{escape(piece.text)}{hide}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        screen = record(Path(folder))
    IMAGE.write_text(svg(screen), encoding="utf-8")
    print(f"{IMAGE.name}: {IMAGE.stat().st_size // 1024} KiB, {screen.clock:.0f} s, {screen.rows} rows")


if __name__ == "__main__":
    main()
