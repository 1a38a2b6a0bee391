"""The programs of scripts/ that make a release, as modules."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def wheel_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("_wheel", monkeypatch)


@pytest.fixture
def audit_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("_audit", monkeypatch)


@pytest.fixture
def sbom_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("_sbom", monkeypatch)


@pytest.fixture
def dependencies_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("_dependencies", monkeypatch)


def _script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)  # they import one another as they do when run
    return importlib.import_module(name)
