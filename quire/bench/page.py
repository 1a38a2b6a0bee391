"""A report as one HTML file that needs nothing else: tables, pictures inside, no scripts, nothing from the network."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from quire.bench.report import Report
from quire.bench.summary_rows import Grid, sweep_verdict
from quire.core.errors import QuireError

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin-bottom: .3rem; overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 0 0 .4rem }
section { margin-top: 1.8rem; overflow-x: auto } .tables { display: flex; flex-wrap: wrap; column-gap: 3rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left; padding-left: 0 }
figure { margin: 1.8rem 0 0 } img { max-width: 100%; border-radius: 6px } .note { color: #555; margin-top: 0 }
.result { border-left: 3px solid #1f6fb4; padding-left: .8rem }
.setting { columns: 20rem; column-gap: 3rem; margin: 0 }
.setting div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid #ddd }
.setting dd { margin: 0; overflow-wrap: anywhere; text-align: right }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } td, th, .setting div { border-color: #444 } .note { color: #aaa }
}
"""
_CAPTIONS = {
    "latency.png": "How long requests took",
    "load.png": "Latency and throughput by load",
    "server.png": "The server over time",
    "parts.png": "Where the time went",
}


def write_page(report: Report, grids: Sequence[Grid], pictures: Mapping[str, bytes], path: Path) -> None:
    try:
        path.expanduser().write_text(page(report, grids, pictures), encoding="utf-8")
    except OSError as error:
        raise QuireError(f"cannot write {path}: {error.strerror or error}.") from error


def page(report: Report, grids: Sequence[Grid], pictures: Mapping[str, bytes]) -> str:
    about = " · ".join(f"{name}: {value}" for name, value in report.machine.items())
    parts = [f"<h1>{escape(report.title)}</h1>", f'<p class="note">{escape(report.date)} · {escape(about)}</p>']
    parts += [f"<p>{escape(note)}</p>" for note in report.notes]
    verdict = sweep_verdict(report)
    if verdict is not None:
        parts.append(f'<p class="result">{escape(verdict)}</p>')
    parts.append(f'<div class="tables">{"".join(_table(grid) for grid in grids)}</div>')
    parts += [_picture(name, data) for name, data in pictures.items()]
    parts.append(_setting(report.setting))
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    title = f"<title>{escape(report.title)}</title><style>{_STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}{title}</head><body>{"".join(parts)}</body></html>\n'


def _table(grid: Grid) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in grid.header)
    first = f"<tr>{header}</tr>" if any(grid.header) else ""
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in grid.rows)
    return f"<section><h2>{escape(grid.title)}</h2><table>{first}{rows}</table></section>"


def _picture(name: str, data: bytes) -> str:
    caption = escape(_CAPTIONS.get(name, name))
    source = f"data:image/png;base64,{b64encode(data).decode()}"
    return f'<figure><h2>{caption}</h2><img alt="{caption}" src="{source}"></figure>'


def _setting(setting: Mapping[str, object]) -> str:
    rows = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in setting.items()
        if value is not None
    ]
    return f'<section><h2>Setting</h2><dl class="setting">{"".join(rows)}</dl></section>'
