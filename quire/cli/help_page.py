"""The page of --help: a command's own options and the settings that people use most; --help-all has every setting.

Descriptions are set in the terminal's width, and no flag of ours is cut in two.
"""

from collections.abc import Sequence
from typing import Any

from cyclopts import App

from quire.config.engine import EngineConfig
from quire.config.fields import field_sections

HELP, HELP_ALL = ("--help", "-h"), "--help-all"
OWN_OPTIONS = "Options"
"""The panel of what only one command has."""
USUAL_SETTINGS = frozenset(
    {
        "model",
        "dtype",
        "max_model_len",
        "tool_parser",
        "gpu_memory_utilization",
        "max_num_seqs",
        "host",
        "port",
        "served_model_name",
        "api_key",
        "replicas",
        "log_level",
    }
)
_WIDEST_NAME = 30
"""Columns: `--long-prefill-token-threshold`."""


def print_page(app: App, tokens: Sequence[str], *, everything: bool) -> None:
    """Print the page of the command that `tokens` begin with."""
    panels = _WholePage() if everything else _ShortPage()
    app.help_formatter = panels
    app.help_print([*tokens])
    panels.finish()


class _WholePage:
    """Prints panel after panel of one page; cyclopts calls it for each."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        from cyclopts.help import DefaultFormatter

        if panel.format == "command":
            DefaultFormatter()(console, options, panel)
        else:
            reflowed = panel.copy(entries=[_reflowed(entry) for entry in panel.entries])
            DefaultFormatter(column_specs=_columns)(console, options, reflowed)

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        from cyclopts.help import DefaultFormatter

        DefaultFormatter().render_usage(console, options, usage)

    def finish(self) -> None:
        """Nothing is left to print."""


class _ShortPage(_WholePage):
    """Keeps panels of settings back, and prints the usual ones of them in one panel at the end."""

    def __init__(self) -> None:
        self._settings = field_sections(EngineConfig)
        self._kept: list[Any] = []
        self._last: tuple[Any, Any, Any] | None = None

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        if panel.title != OWN_OPTIONS and all(_setting(entry) in self._settings for entry in panel.entries):
            self._kept += panel.entries
            self._last = console, options, panel
        else:
            super().__call__(console, options, panel)

    def finish(self) -> None:
        if self._last is None:
            return
        console, options, panel = self._last
        usual = [entry for entry in self._kept if _setting(entry) in USUAL_SETTINGS]
        super().__call__(console, options, panel.copy(title="Usual settings", entries=usual))
        if len(self._kept) > len(usual):
            console.print(f"{HELP_ALL} shows {len(self._kept) - len(usual)} settings more.")


def _setting(entry: Any) -> str:
    """The field of a section that an option sets, if it is one."""
    return entry.positive_names[0].removeprefix("--").replace("-", "_") if entry.positive_names else ""


def _reflowed(entry: Any) -> Any:
    """Without the line breaks of the source."""
    from cyclopts.help import InlineText
    from rich.text import Text

    plain = entry.description.primary_renderable.plain if entry.description is not None else ""
    return entry.copy(description=InlineText(Text(" ".join(plain.split()))))


def _columns(console: Any, options: Any, entries: list[Any]) -> tuple[Any, ...]:
    from cyclopts.help.specs import NameRenderer, get_default_parameter_columns

    *before, name, description = get_default_parameter_columns(console, options, entries)
    width = max(_WIDEST_NAME, name.max_width or 0)
    return (*before, name.copy(renderer=NameRenderer(max_width=width), max_width=width), description)
