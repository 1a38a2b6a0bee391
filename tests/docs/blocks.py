"""The fenced blocks of a Markdown page, with what a comment before one says of it.

`<!-- not run: why -->` excuses a block, and `<!-- slow -->` leaves it to the slow tests.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "rooms").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<remark>[^\n]*) -->\n)?^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_EXCUSE = "not run:"


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page."""

    page: Path
    line: int
    language: str
    text: str
    remark: str

    @property
    def excuse(self) -> str | None:
        """Why it is not run; None where it is."""
        return self.remark.removeprefix(_EXCUSE).strip() if self.remark.startswith(_EXCUSE) else None

    @property
    def is_slow(self) -> bool:
        return self.remark == "slow"

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """In the order of the page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(Block(page, line, match["language"], match["text"], match["remark"] or ""))
    return found
