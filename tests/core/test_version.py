"""One file says the version; the package, the chart and the changelog follow it."""

import re
import tomllib
from pathlib import Path

import yaml

import quire
from quire.core.version import QUIRE_VERSION

ROOT = Path(__file__).parents[2]
_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<day>\d{4}-\d\d-\d\d))?$", re.MULTILINE)


def test_the_package_is_built_as_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    (source,) = (each for each in project["tool"]["dynamic-metadata"] if each["field"] == "version")
    found = re.search(source["regex"], (ROOT / source["input"]).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found["value"] == QUIRE_VERSION == quire.__version__


def test_the_version_is_a_semantic_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(-rc\.\d+)?", QUIRE_VERSION)


def test_the_chart_deploys_this_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "quire" / "Chart.yaml").read_text(encoding="utf-8"))
    assert str(chart["appVersion"]) == QUIRE_VERSION


def test_the_changelog_leads_from_what_is_unreleased_to_this_version() -> None:
    headings = list(_HEADING.finditer((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    assert [heading["name"] for heading in headings][:1] == ["Unreleased"]
    released = [heading["name"] for heading in headings[1:]]
    assert all(heading["day"] for heading in headings[1:]), "a release has its day: ## [0.1.0] - 2026-01-31"
    assert released == sorted(released, key=_parts, reverse=True)
    # while the version's own heading is missing, everything above the last release is still to come in it
    assert released[:1] == [QUIRE_VERSION] or all(_parts(name) < _parts(QUIRE_VERSION) for name in released)


def test_changes_stand_under_the_kinds_of_keep_a_changelog() -> None:
    kinds = re.findall(r"^### (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split("."))
