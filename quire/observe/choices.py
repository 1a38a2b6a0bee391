"""The start-up table: every choice `resolve` made, with its reason."""

from collections.abc import Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quire.config.resolved import Choice

_LOG_WIDTH = 120


def choices_table(choices: Sequence[Choice]) -> Table:
    """One row a choice."""
    table = Table("Setting", "Value", "Because", box=SIMPLE_HEAD, title="Choices", title_justify="left")
    for choice in choices:
        table.add_row(Text(choice.name), Text(choice.value), Text(choice.reason))
    return table


def choices_text(choices: Sequence[Choice]) -> str:
    """The same as plain text, for a log."""
    out = StringIO()
    Console(file=out, width=_LOG_WIDTH, no_color=True).print(choices_table(choices))
    return out.getvalue().rstrip()
