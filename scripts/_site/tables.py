"""Tables of Markdown."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown without line breaks."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Text that stays inside its cell; what it has in backticks is left as it is."""
    pieces = " ".join(text.split()).split("`")
    pieces[::2] = [piece.replace("|", "\\|").replace("<", "&lt;") for piece in pieces[::2]]
    return "`".join(pieces)


def code(text: str) -> str:
    """Code in a cell."""
    return f"`{' '.join(text.split())}`"
