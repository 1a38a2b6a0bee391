"""The dashboard and the alerts ask only for metrics that exist, and the committed file is the generated one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from quire.observe import catalog
from quire.observe.dashboard import dashboard_json, expressions
from tests.observe.samples import busy_metrics, names, read

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"quire_\w+")
SELECTOR = re.compile(r"(quire_\w+)\{([^}]*)\}")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "quire.json").read_text(encoding="utf-8"))
    return loaded


def of_routers() -> dict[str, set[str]]:
    """The samples that only a router has, with their labels."""
    found: dict[str, set[str]] = {}
    for metric in catalog.ROUTER_METRICS:
        for suffix in ("_bucket", "_sum", "_count") if metric.buckets else ("",):
            found[metric.name + suffix] = {*metric.labels, *({"le"} if suffix == "_bucket" else ())}
    return found


def test_committed_dashboard_is_the_generated_one() -> None:
    committed = (DEPLOY / "grafana" / "quire.json").read_text(encoding="utf-8")
    assert committed == dashboard_json(), "run scripts/dashboard"


def test_every_query_asks_for_metrics_that_exist(dashboard: dict[str, Any]) -> None:
    exported = names(busy_metrics()) | of_routers().keys()
    queries = expressions(dashboard)
    assert len(queries) > 60
    for query in queries:
        asked = METRIC.findall(query)
        assert asked, query
        assert set(asked) <= exported, query


def test_every_query_selects_and_groups_by_labels_that_exist(dashboard: dict[str, Any]) -> None:
    labels: dict[str, set[str]] = {}
    for name, pairs in read(busy_metrics()):
        labels.setdefault(name, {"model_name"}).update(label for label, _ in pairs)
    for name, own in (labels | of_routers()).items():
        labels[name] = own | {"instance"}  # which Prometheus adds
    for query in expressions(dashboard):
        for name, selector in SELECTOR.findall(query):
            assert set(re.findall(r"(\w+)=", selector)) <= labels[name], query
        for by in re.findall(r"by \(([^)]*)\)", query):
            (name, *_) = METRIC.findall(query)
            assert set(by.split(", ")) <= labels[name], query


def test_everything_exported_is_drawn(dashboard: dict[str, Any]) -> None:
    drawn = " ".join(expressions(dashboard))
    missing = [metric.name for metric in catalog.ALL_METRICS + catalog.ROUTER_METRICS if metric.name not in drawn]
    assert missing == [catalog.CACHE_CONFIG.name]


def test_brackets_of_queries_are_closed(dashboard: dict[str, Any]) -> None:
    for query in expressions(dashboard):
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing), query


def test_panels_do_not_overlap_and_have_their_own_ids(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_alerts_ask_for_metrics_that_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "quire.rules.yml").read_text(encoding="utf-8"))
    exported = names(busy_metrics())
    exported |= {metric.name for metric in catalog.ROUTER_METRICS}
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(found) > 15
    for rule in found:
        assert set(METRIC.findall(rule["expr"])) <= exported, rule
        assert "record" in rule or rule["annotations"]["summary"]


def test_files_point_at_each_other() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    assert all((DEPLOY / "prometheus" / name).is_file() for name in prometheus["rule_files"])
    (scraped,) = prometheus["scrape_configs"]
    (found,) = scraped["file_sd_configs"]
    assert all((DEPLOY / "prometheus" / name).is_file() for name in found["files"])
