"""Starting a loop: what is said in the log where a model runs slower than it might."""

import logging
from pathlib import Path

import pytest
import torch

from quire.config import decide_cpu
from quire.config.engine import EngineConfig
from quire.engine.start import start_loop
from quire.ops.cpu.record import ACTIVATIONS, PANEL, SCORES
from quire.worker.device import device_facts
from tests.tiny_model import make_text_model

needs_core = pytest.mark.skipif(
    not device_facts(torch.device("cpu")).has_cpu_core, reason="quire's native core is not installed here"
)


def warnings(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


def asked(folder: Path, **settings: object) -> EngineConfig:
    return EngineConfig.from_flat(model=str(folder), num_gpu_blocks_override=64, **settings)


def test_resolve_knows_what_the_core_has() -> None:
    assert set(ACTIVATIONS) == decide_cpu.CORE_ACTIVATIONS
    assert set(SCORES) == decide_cpu.CORE_SCORES
    assert decide_cpu.CORE_PANEL == PANEL


@needs_core
def test_what_the_core_cannot_record_runs_on_torch_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_text_model(tmp_path)
    started = start_loop(asked(tmp_path), tmp_path)
    assert started.resolved.cpu_core
    assert warnings(caplog.records) == []
    monkeypatch.setattr(decide_cpu, "CORE_ACTIVATIONS", frozenset({"relu"}))
    started = start_loop(asked(tmp_path), tmp_path)
    assert not started.resolved.cpu_core
    [told] = warnings(caplog.records)
    assert "native core for CPUs has no activation silu" in told
    reasons = {choice.name: choice.reason for choice in started.resolved.choices}
    assert reasons["cpu_compute"] == "the native core has no activation silu"


@needs_core
def test_nobody_is_warned_of_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_text_model(tmp_path)
    monkeypatch.setattr(decide_cpu, "CORE_ACTIVATIONS", frozenset({"relu"}))
    start_loop(asked(tmp_path, cpu_compute="exact"), tmp_path)
    assert warnings(caplog.records) == []
