"""The package as it stands keeps every rule of docs/architecture.md."""

from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture import rules

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def package() -> rules.Package:
    return rules.read_package(ROOT)


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_package_keeps_the_rule(package: rules.Package, rule: rules.Rule) -> None:
    assert rule(package) == []


def test_rooms_of_the_table_are_the_folders_of_the_package() -> None:
    folders = {path.parent.name for path in (ROOT / "quire").glob("*/__init__.py")}
    assert folders == set(rules.ALLOWED_ROOMS)


def test_table_has_no_cycle() -> None:
    graph = {room: {name.partition(".")[0] for name in allowed} for room, allowed in rules.ALLOWED_ROOMS.items()}
    assert set(TopologicalSorter(graph).static_order()) == set(rules.ALLOWED_ROOMS)
