"""Each library's file: what it tells the library is what the definition needs."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from quire.ops.attention.base import AttentionBackend, AttentionShape
from quire.ops.attention.flash_attn import FlashAttention
from quire.ops.attention.flashinfer import FlashInfer
from quire.ops.reference.paged_attention import paged_attention as reference
from tests.ops.attention.fakes import FakeFlashAttention, FakeFlashInfer
from tests.ops.triton.test_paged_attention import DEVICE, MIXED, make_step

CPU = torch.device("cpu")
SHAPE = AttentionShape(4, 2, 64, 256, torch.bfloat16, torch.bfloat16, 0.125)
COUNTS, LENGTHS = [new for _, new in MIXED], [length for length, _ in MIXED]
pytestmark = pytest.mark.skipif(DEVICE.type != "cpu", reason="the fakes compute on a CPU")


def check(backend: AttentionBackend, block_size: int, window: int | None, softcap: float | None) -> None:
    step = make_step(MIXED, (2, 2, 64), torch.bfloat16, block_size)
    attend = backend.step(COUNTS, LENGTHS)
    for _ in range(2):  # two layers
        found = attend(*step.arguments(), scale=0.125, window=window, softcap=softcap)
        assert torch.equal(found, reference(*step.arguments(), 0.125, window, softcap))


@pytest.mark.parametrize("window", [None, 1, 17])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_flash_attention_is_told_what_the_step_is(
    window: int | None, softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeFlashAttention()
    fake.install(monkeypatch)
    check(FlashAttention(SHAPE, CPU), 256, window, softcap)
    assert [call["max_seqlen_q"] for call in fake.calls] == [40, 40]
    assert fake.calls[0]["max_seqlen_k"] == 65


@pytest.mark.parametrize("window", [None, 1, 17])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("block_size", [16, 1, 256])
def test_flashinfer_plans_a_step_once(
    window: int | None, softcap: float | None, block_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeFlashInfer()
    fake.install(monkeypatch)
    backend = FlashInfer(replace(SHAPE, block_size=block_size), CPU)
    check(backend, block_size, window, softcap)
    assert (len(fake.plans), fake.runs) == (1, 2)
    check(backend, block_size, window, softcap)
    assert (len(fake.plans), fake.runs) == (2, 4)


def test_flashinfer_plans_layers_that_look_otherwise_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of layers, with tables and windows of their own, in turn."""
    fake = FakeFlashInfer()
    fake.install(monkeypatch)
    backend = FlashInfer(replace(SHAPE, block_size=16), CPU)
    steps = [make_step(MIXED, (2, 2, 64), torch.bfloat16, seed=seed) for seed in (0, 1)]
    for _ in range(2):
        attend = backend.step(COUNTS, LENGTHS)
        for step, window in [(steps[0], None), (steps[1], 9)] * 3:
            found = attend(*step.arguments(), scale=0.125, window=window)
            assert torch.equal(found, reference(*step.arguments(), 0.125, window, None))
    assert (len(fake.plans), fake.runs) == (4, 12)


@pytest.mark.parametrize("backend", [FlashAttention, FlashInfer])
def test_what_a_backend_cannot_serve_is_said_with_what_to_do(backend: type[AttentionBackend]) -> None:
    problem: Callable[[AttentionShape], str | None] = backend.problem
    assert problem(SHAPE) is None
    assert "--dtype" in str(problem(replace(SHAPE, dtype=torch.float32, cache_dtype=torch.float32)))
    assert "--kv-cache-dtype" in str(problem(replace(SHAPE, cache_dtype=torch.float8_e4m3fn)))
    assert "have 84" in str(problem(replace(SHAPE, head_dim=84)))
    assert "have 512" in str(problem(replace(SHAPE, head_dim=512)))


def test_flash_attention_wants_large_blocks() -> None:
    assert "--block-size 256" in str(FlashAttention.problem(replace(SHAPE, block_size=16)))
    assert FlashInfer.problem(replace(SHAPE, block_size=16)) is None
