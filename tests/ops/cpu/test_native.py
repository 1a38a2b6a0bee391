"""The native core as it is found and as it is missing; neither depends on whether this machine could compile it."""

import importlib
import logging
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from quire.ops.cpu import native

CORE = "quire.ops.cpu._core"


@pytest.fixture(autouse=True)
def _not_loaded_before() -> Iterator[None]:
    native.load.cache_clear()
    yield
    native.load.cache_clear()


def test_the_core_is_imported_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    core = ModuleType(CORE)
    monkeypatch.setitem(sys.modules, CORE, core)
    assert native.load() is core
    monkeypatch.delitem(sys.modules, CORE)
    assert native.load() is core
    assert not caplog.records


def test_a_missing_core_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, CORE, None)
    assert native.load() is None
    assert native.load() is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert CORE in record.getMessage()
    assert "compiler" in record.getMessage()


def test_a_core_that_does_not_load_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> ModuleType:
        raise ImportError(f"{name}: undefined symbol: kernels_amx")

    monkeypatch.setattr(importlib, "import_module", fail)
    assert native.load() is None
    assert "undefined symbol: kernels_amx" in caplog.text


def test_other_errors_of_the_core_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise RuntimeError("a bug")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        native.load()
