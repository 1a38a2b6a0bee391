"""Which library attends: the one named, or one that proves faster and right."""

import logging
from collections.abc import Iterator

import pytest
import torch

from quire.core.errors import ConfigError
from quire.ops.attention import choose
from quire.ops.attention.base import AttentionShape
from quire.ops.attention.choose import choose_backend, fastest, named
from quire.ops.attention.flash_attn import FlashAttention
from quire.ops.attention.flashinfer import FlashInfer
from tests.ops.attention.fakes import FakeFlashAttention, FakeFlashInfer

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SHAPE = AttentionShape(4, 2, 64, 256, torch.bfloat16, torch.bfloat16, 0.125, ((None, None), (40, 20.0)))


@pytest.fixture(autouse=True)
def small_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "_TRIED", ((40, 40), (70, 9), (30, 1)))


def timer_of(*seconds: float):
    """Quire's own time first, then each candidate's."""
    left: Iterator[float] = iter(seconds)

    def timer(call, device) -> float:
        call()
        return next(left)

    return timer


@pytest.mark.parametrize("name", ["flash-attn", "flashinfer"])
def test_a_library_that_is_not_here_is_refused_by_name_and_passed_over_otherwise(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--attention-backend is {name}, which is not installed.*pip install"):
        choose_backend(name, SHAPE, GPU)
    assert choose_backend("auto", SHAPE, GPU, timer=timer_of()) is None
    assert choose_backend("triton", SHAPE, GPU) is None


def test_a_named_library_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeFlashAttention()
    fake.install(monkeypatch)
    assert isinstance(named("flash-attn", SHAPE, CPU), FlashAttention)
    assert [call["window_size"] for call in fake.calls] == [(-1, 0), (39, 0)]


def test_a_named_library_that_cannot_or_does_not_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeFlashAttention(wrong=True).install(monkeypatch)
    with pytest.raises(ConfigError, match="is installed and does not work: Tensor-likes are not close"):
        named("flash-attn", SHAPE, CPU)
    odd = AttentionShape(4, 2, 64, 16, torch.bfloat16, torch.bfloat16, 0.125)
    with pytest.raises(ConfigError, match=r"cannot serve this model: .* --block-size 256"):
        named("flash-attn", odd, CPU)
    from tests.ops.attention.fakes import install

    install(monkeypatch, "flash_attn")  # a package without the function
    with pytest.raises(ConfigError, match="is installed and does not work: cannot import name"):
        named("flash-attn", SHAPE, CPU)


def test_the_fastest_of_several_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeFlashAttention().install(monkeypatch)
    FakeFlashInfer().install(monkeypatch)
    assert isinstance(fastest(SHAPE, CPU, timer_of(1.0, 0.8, 0.5)), FlashInfer)
    assert isinstance(fastest(SHAPE, CPU, timer_of(1.0, 0.5, 0.8)), FlashAttention)
    assert fastest(SHAPE, CPU, timer_of(1.0, 0.97, 1.5)) is None, "not clearly faster"


def test_a_library_that_is_wrong_is_not_used_however_fast(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    FakeFlashAttention(wrong=True).install(monkeypatch)
    FakeFlashInfer().install(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert isinstance(fastest(SHAPE, CPU, timer_of(1.0, 0.5)), FlashInfer)
    assert "flash-attn is installed and not used" in caplog.text


def test_nothing_is_measured_where_nothing_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeFlashAttention().install(monkeypatch)
    odd = AttentionShape(4, 2, 64, 16, torch.bfloat16, torch.bfloat16, 0.125)
    assert fastest(odd, CPU, timer_of()) is None
