"""A report as one HTML file that needs nothing else: verdict, charts, tables; no scripts, nothing from the network."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from quire.bench.draft_measures import ACCEPTED_LENGTH, ACCEPTED_SHARE
from quire.bench.measure import percentile
from quire.bench.pictures import LATENCIES, Pictures
from quire.bench.report import Report
from quire.bench.summary_rows import Grid, digits
from quire.bench.svg_chart import chart_css
from quire.bench.verdict import verdict
from quire.core.errors import QuireError
from quire.observe.theme import theme_css

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SINGLES = {
    "output tokens a second": "Output tokens a second",
    "requests a second": "Requests a second",
    "goodput": "Good requests a second",
    ACCEPTED_SHARE: "% of drafts right",
    ACCEPTED_LENGTH: "Mean accepted length",
}


def write_page(report: Report, grids: Sequence[Grid], pictures: Pictures, path: Path) -> None:
    try:
        path.expanduser().write_text(page(report, grids, pictures), encoding="utf-8")
    except OSError as error:
        raise QuireError(f"cannot write {path}: {error.strerror or error}.") from error


def page(report: Report, grids: Sequence[Grid], pictures: Pictures) -> str:
    parts = [_header(report), _figures(report), _charts(pictures), _tables(grids), _setting(report.setting)]
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head += '<meta name="color-scheme" content="light dark">'
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    head += f"<title>{escape(report.title)}</title><style>{theme_css()}{css}{chart_css()}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{"".join(parts)}</main></body></html>\n'


def _header(report: Report) -> str:
    found = verdict(report)
    about = " · ".join([report.date, *(f"{name}: {value}" for name, value in report.machine.items())])
    lines = [f'<h1 class="verdict {found.tone}">{escape(found.text)}</h1>']
    lines.append(f'<p class="about">{escape(report.title)}</p><p class="note">{escape(about)}</p>')
    lines += [f"<p>{escape(note)}</p>" for note in report.notes]
    return f"<header>{''.join(lines)}</header>"


def _figures(report: Report) -> str:
    """The numbers most readers look for, each on a card."""
    cards = []
    for measure in report.measures:
        ordered = sorted(measure.samples)
        if measure.name in _SINGLES:
            more = f"{digits(ordered[0])} – {digits(ordered[-1])}" if len(ordered) > 1 else ""
            cards.append(_figure(_SINGLES[measure.name], digits(percentile(ordered, 50)), more))
        elif measure.name in LATENCIES and not measure.is_single:
            high = f"99 % within {_time(percentile(ordered, 99))}"
            cards.append(_figure(f"{LATENCIES[measure.name]}, median", _time(percentile(ordered, 50)), high))
    return f'<dl class="figures">{"".join(cards)}</dl>' if cards else ""


def _figure(name: str, value: str, more: str) -> str:
    extra = f'<dd class="more">{escape(more)}</dd>' if more else ""
    return f'<div class="card"><dt>{escape(name)}</dt><dd>{escape(value)}</dd>{extra}</div>'


def _time(seconds: float) -> str:
    return f"{digits(seconds)} s" if seconds >= 1 else f"{digits(1e3 * seconds)} ms"


def _charts(pictures: Pictures) -> str:
    drawn = "".join(f'<figure class="card">{picture.svg()}</figure>' for picture in pictures.values())
    return f'<section class="charts" aria-label="Charts">{drawn}</section>' if drawn else ""


def _tables(grids: Sequence[Grid]) -> str:
    return f'<div class="tables">{"".join(_table(grid) for grid in grids)}</div>'


def _table(grid: Grid) -> str:
    header = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in grid.header)
    first = f"<thead><tr>{header}</tr></thead>" if any(grid.header) else ""
    rows = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in grid.rows)
    table = f'<div class="scroller" tabindex="0"><table>{first}<tbody>{rows}</tbody></table></div>'
    return f'<section class="card"><h2>{escape(grid.title)}</h2>{table}</section>'


def _cell(text: str) -> str:
    """A pair of numbers is broken before its second one, if at all."""
    return escape(text).replace(" / ", " /&nbsp;")


def _setting(setting: Mapping[str, object]) -> str:
    rows = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in setting.items()
        if value is not None
    ]
    return f'<section class="card"><h2>Setting</h2><dl class="setting">{"".join(rows)}</dl></section>' if rows else ""
