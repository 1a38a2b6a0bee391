"""What the workflows build and test is what the package says it runs on."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = [
    name.rpartition(" ")[2]
    for name in PROJECT["project"]["classifiers"]
    if name.startswith("Programming Language :: Python :: 3.")
]


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    return found


def test_the_classifiers_are_the_versions_that_are_required() -> None:
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]},<3.{int(PYTHONS[-1].rpartition('.')[2]) + 1}"


def test_the_tests_run_on_every_version_and_both_architectures() -> None:
    matrix = read("ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert sorted(matrix["runner"]) == ["ubuntu-24.04", "ubuntu-24.04-arm"]


def test_wheels_are_built_for_the_oldest_version_and_for_the_stable_abi() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    stable = PROJECT["tool"]["scikit-build"]["wheel"]["py-api"]
    assert settings["build"] == [f"cp3{version.rpartition('.')[2]}-manylinux_*" for version in PYTHONS]
    assert stable == "cp312"
    assert settings["config-settings"] == {"cmake.define.QUIRE_PORTABLE": "ON"}
    assert sorted(read("wheels.yml")["jobs"]["wheels"]["strategy"]["matrix"]["runner"]) == [
        "ubuntu-24.04",
        "ubuntu-24.04-arm",
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_do_no_more_than_they_need(path: Path) -> None:
    """No job gets a token that can write, none leaves it in the clone, and actions are GitHub's own."""
    workflow = read(path.name)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        for step in job["steps"]:
            assert step.get("uses", "actions/").startswith("actions/")
            assert "checkout" not in step.get("uses", "") or step["with"] == {"persist-credentials": False}
