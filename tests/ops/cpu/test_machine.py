"""The machine of the process: the one that was started, or one that disturbs nobody."""

import pytest

from quire.ops.cpu import machine as process
from tests.ops.cpu.machines import VARIANTS, machine, needs_core


@pytest.fixture(autouse=True)
def _none_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process._Process, "machine", None)


@needs_core
def test_one_thread_unless_more_were_started() -> None:
    first = process.machine()
    assert first is not None
    assert first.threads == 1
    assert process.machine() is first


@needs_core
def test_what_was_started_is_used() -> None:
    started = machine(VARIANTS[0], 2)
    process.set_machine(started)
    assert process.machine() is started


def test_there_is_none_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ops.cpu.machine.native.load", lambda: None)
    assert process.machine() is None
