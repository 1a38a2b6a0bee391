"""The start-up table: every choice `resolve` made, with its reason."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from quire.config.resolved import Choice


def choices_table(choices: Sequence[Choice]) -> Table:
    """One row a choice."""
    table = Table("Setting", "Value", "Because", box=SIMPLE_HEAD, title="Choices", title_justify="left")
    for choice in choices:
        table.add_row(Text(choice.name), Text(choice.value), Text(choice.reason))
    return table
