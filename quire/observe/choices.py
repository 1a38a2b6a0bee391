"""The start-up table: every choice `resolve` made, with its reason."""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from quire.config.resolved import Choice

if TYPE_CHECKING:
    from rich.table import Table

_LOG_WIDTH = 120
_HEAD = ("Setting", "Value", "Because")


def choices_table(choices: Sequence[Choice]) -> "Table":
    """One row a choice."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(*_HEAD, box=SIMPLE_HEAD, title="Choices", title_justify="left")
    for choice in choices:
        table.add_row(Text(choice.name), Text(choice.value), Text(choice.reason))
    return table


def choices_text(choices: Sequence[Choice]) -> str:
    """The same as plain text, for a log; every engine writes it, so it must not take the time to import rich."""
    rows = [_HEAD, *((choice.name, choice.value, choice.reason) for choice in choices)]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = []
    for name, value, reason in rows:
        head = f"  {name:<{first}}  {value:<{second}}  "
        begun, *more = wrap(reason, max(20, _LOG_WIDTH - len(head))) or [""]
        lines += [head + begun, *(" " * len(head) + line for line in more)]
    return "\n".join(["Choices", *lines])
