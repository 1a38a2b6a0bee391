"""Cases of latent attention: what they must read and compute, and that what is timed attends."""

import pytest
import torch

from quire.bench.kernels.gpu_latent import CASES, LatentCase, LatentLayer


def test_bytes_and_operations_of_a_decode() -> None:
    case = LatentCase(sequences=64, length=1024, new=1, heads=16)
    up, rows = 16 * 256 * 512, 64 * 16 * 320
    assert case.bytes() == 64 * 1024 * 576 * 2 + 2 * (up + rows)
    assert case.operations() == 2 * 64 * 16 * (1024 * (576 + 512) + 256 * 512)


def test_a_prompt_multiplies_with_keys_and_values_that_were_made_of_latents() -> None:
    case = LatentCase(sequences=1, length=4, new=4, heads=2)
    assert case.operations() == 2 * 2 * (10 * (192 + 128) + 4 * 256 * 512)
    assert case.is_fresh
    assert str(case) == "prompt, 1 × 4, 2 heads"


@pytest.mark.parametrize("case", [LatentCase(2, 20, 1, 2), LatentCase(1, 9, 9, 2), LatentCase(2, 20, 5, 2)], ids=str)
def test_what_is_timed_attends(case: LatentCase) -> None:
    found = LatentLayer(case, "cpu").attend()
    assert found.shape == (case.sequences * case.new, case.heads, 128)
    assert torch.isfinite(found.float()).all()


def test_cases_differ() -> None:
    assert len(set(map(str, CASES))) == len(CASES)
