"""A help panel whose first column is wide enough that no flag of ours is cut in two."""

from typing import Any

_WIDEST_NAME = 30
"""Columns: `--long-prefill-token-threshold`."""


def wide_panel(console: Any, options: Any, panel: Any) -> None:
    """Print one panel of options; cyclopts calls this for groups that name it."""
    from cyclopts.help import DefaultFormatter

    DefaultFormatter(column_specs=_columns)(console, options, panel)


def _columns(console: Any, options: Any, entries: list[Any]) -> tuple[Any, ...]:
    from cyclopts.help.specs import NameRenderer, get_default_parameter_columns

    *before, name, description = get_default_parameter_columns(console, options, entries)
    width = max(_WIDEST_NAME, name.max_width or 0)
    return (*before, name.copy(renderer=NameRenderer(max_width=width), max_width=width), description)
