"""Dashboards in the shapes of Grafana: charts under headings, placed on its grid. Knows no metric."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
"""Columns of Grafana's grid."""
_HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Query:
    """One set of lines: an expression and how its lines are called."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart over time."""

    title: str
    unit: str
    """As Grafana calls it: s, bytes, percentunit, short, reqps."""
    queries: tuple[Query, ...]
    about: str = ""
    top: float | None = None
    """End of the axis, where there is one."""
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def dashboard(rows: Iterable[Row], variables: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """The document that Grafana imports."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "quire",
        "title": "quire",
        "description": "Made by scripts/dashboard from quire/observe/catalog.py; edit those, not this.",
        "tags": ["llm", "quire"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source, *(_variable(*each) for each in variables)]},
        "panels": _layout(rows),
    }


def _variable(name: str, label: str, definition: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": definition,
        "query": {"query": definition, "refId": name},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 3,
    }


def _layout(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Three or four panels abreast under each heading, whichever leaves fewer gaps."""
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        heading = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        placed.append({"type": "row", "title": row.title, "gridPos": heading, "collapsed": False, "panels": []})
        top += 1
        abreast = 4 if len(row.panels) % 4 == 0 else 3
        width = _WIDTH // abreast
        for index, panel in enumerate(row.panels):
            y = top + _HEIGHT * (index // abreast)
            placed.append(_panel(panel, {"h": _HEIGHT, "w": width, "x": width * (index % abreast), "y": y}))
        top += _HEIGHT * -(-len(row.panels) // abreast)
    return [{"id": number, **panel} for number, panel in enumerate(placed, start=1)]


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    drawn: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 25 if panel.stacked else 8, "showPoints": "never"}
    if panel.stacked:
        drawn["stacking"] = {"mode": "normal", "group": "A"}
    defaults = {"unit": panel.unit, "min": 0, "custom": drawn}
    if panel.top is not None:
        defaults["max"] = panel.top
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.expression, "legendFormat": query.legend}
            for index, query in enumerate(panel.queries)
        ],
    }
