"""A report as one HTML file that needs nothing else: tables, pictures inside, no scripts, nothing from the network."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from quire.bench.report import Report
from quire.bench.summary_rows import Grid
from quire.core.errors import QuireError

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } img { max-width: 100% } .note { color: #555 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } td, th { border-color: #444 } .note { color: #aaa }
}
"""


def write_page(report: Report, grids: Sequence[Grid], pictures: Mapping[str, bytes], path: Path) -> None:
    try:
        path.expanduser().write_text(page(report, grids, pictures), encoding="utf-8")
    except OSError as error:
        raise QuireError(f"cannot write {path}: {error.strerror or error}.") from error


def page(report: Report, grids: Sequence[Grid], pictures: Mapping[str, bytes]) -> str:
    about = " · ".join(f"{name}: {value}" for name, value in report.machine.items())
    parts = [f"<h1>{escape(report.title)}</h1>", f'<p class="note">{escape(report.date)} · {escape(about)}</p>']
    parts += [f"<p>{escape(note)}</p>" for note in report.notes]
    parts += [_table(grid) for grid in grids]
    parts += [
        f'<p><img alt="{escape(name)}" src="data:image/png;base64,{b64encode(data).decode()}"></p>'
        for name, data in pictures.items()
    ]
    setting = [[name, str(value)] for name, value in report.setting.items() if value is not None]
    parts.append(_table(Grid("Setting", ["", ""], setting)))
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    title = f"<title>{escape(report.title)}</title><style>{_STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}{title}</head><body>{"".join(parts)}</body></html>\n'


def _table(grid: Grid) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in grid.header)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in grid.rows)
    return f"<h2>{escape(grid.title)}</h2><table><tr>{header}</tr>{rows}</table>"
