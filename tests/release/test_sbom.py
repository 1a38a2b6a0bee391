"""The bill of materials names what quire needs, and nothing that is installed for other reasons."""

from importlib.metadata import version
from types import ModuleType
from typing import Any

import pytest


def component(name: str) -> dict[str, Any]:
    return {
        "bom-ref": f"{name}==1",
        "name": name,
        "version": "1",
        "type": "library",
        "externalReferences": [{"url": "x"}],
    }


def bill() -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "metadata": {"tools": {}},
        "components": [component(name) for name in ("PyYAML", "numpy", "pytest", "quire")],
        "dependencies": [
            {"ref": "quire==1", "dependsOn": ["pytest==1", "numpy==1", "PyYAML==1"]},
            {"ref": "pytest==1"},
            {"ref": "numpy==1"},
            {"ref": "PyYAML==1"},
        ],
    }


def test_only_dependencies_are_left(sbom_script: ModuleType) -> None:
    found = sbom_script.cut(bill(), ["numpy", "pyyaml", "quire"])
    assert [each["name"] for each in found["components"]] == ["PyYAML", "numpy"]
    assert found["dependencies"] == [
        {"ref": "quire==1", "dependsOn": ["PyYAML==1", "numpy==1"]},
        {"ref": "numpy==1", "dependsOn": []},
        {"ref": "PyYAML==1", "dependsOn": []},
    ]


def test_quire_is_the_subject_without_where_it_came_from(sbom_script: ModuleType) -> None:
    subject = sbom_script.cut(bill(), ["quire"])["metadata"]["component"]
    assert subject == {"bom-ref": "quire==1", "name": "quire", "version": "1", "type": "application"}


def test_a_dependency_that_is_not_described_is_an_error(sbom_script: ModuleType) -> None:
    with pytest.raises(ValueError, match="describes no torch"):
        sbom_script.cut(bill(), ["quire", "torch"])


def test_dependencies_follow_extras_and_what_those_need(dependencies_script: ModuleType) -> None:
    """Of a package that all tests have: uvicorn needs click, and its extra `standard` httptools."""
    plain = dependencies_script.dependencies(package="uvicorn")
    assert plain["uvicorn"] == version("uvicorn")
    assert "click" in plain
    assert "httptools" not in plain
    assert dependencies_script.check_extras(["none"], "uvicorn") == "uvicorn has no extra 'none'; it has standard."


def test_tools_of_tests_are_no_dependencies(dependencies_script: ModuleType) -> None:
    found = dependencies_script.dependencies()
    assert {"quire", "torch", "numpy", "starlette"} <= set(found)
    assert not {"pytest", "mypy", "bandit", "ruff"} & set(found)
