"""The filters against a slow oracle, against transformers, and on ties."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.reference.top_k_top_p_min_p import top_k_top_p_min_p
from tests.sampling import oracle

NOTHING = -math.inf


def kept(logits: list[float], top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> list[int]:
    """Which tokens of one row stay."""
    found = top_k_top_p_min_p(
        torch.tensor([logits]), torch.tensor([top_k]), torch.tensor([top_p]), torch.tensor([min_p])
    )
    return [token for token, logit in enumerate(found[0].tolist()) if logit > NOTHING]


def random_settings(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    top_k = torch.randint(0, 40, (count,), generator=generator)
    top_p = torch.rand(count, generator=generator).clamp(min=0.01)
    min_p = torch.rand(count, generator=generator) * 0.3
    for off, tensor in ((0, top_k), (1.0, top_p), (0.0, min_p)):
        tensor[torch.rand(count, generator=generator) < 0.3] = off
    return top_k, top_p, min_p


@given(
    st.lists(st.integers(-12, 12).map(lambda x: x / 4), min_size=1, max_size=25),
    st.sampled_from([0, -1, 1, 2, 5, 24, 100]),
    st.sampled_from([0.05, 0.37, 0.5, 0.83, 0.99, 1.0]),
    st.sampled_from([0.0, 0.05, 0.3, 1.0]),
)
def test_equals_the_oracle(logits: list[float], top_k: int, top_p: float, min_p: float) -> None:
    expected = oracle.filtered(logits, SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p))
    assert kept(logits, top_k, top_p, min_p) == [i for i, each in enumerate(expected) if each > NOTHING]


@pytest.mark.parametrize("vocab_size", [7, 1009, 32000])
def test_equals_transformers(vocab_size: int) -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    generator = torch.Generator().manual_seed(vocab_size)
    logits = torch.randn(24, vocab_size, generator=generator) * 3
    top_k, top_p, min_p = random_settings(24, generator)
    found = top_k_top_p_min_p(logits, top_k, top_p, min_p)
    for row in range(24):
        scores = process.MinPLogitsWarper(float(min_p[row]))(None, logits[row : row + 1])
        if top_k[row] > 0:
            scores = process.TopKLogitsWarper(int(top_k[row]))(None, scores)
        if top_p[row] < 1:
            scores = process.TopPLogitsWarper(float(top_p[row]))(None, scores)
        assert torch.equal(found[row], scores[0]), f"row {row}: {top_k[row]} {top_p[row]} {min_p[row]}"


def test_what_stays_is_unchanged() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    found = top_k_top_p_min_p(logits, torch.tensor([3, 0, 50]), torch.tensor([1.0, 0.5, 1.0]))
    stays = found > NOTHING
    assert torch.equal(found[stays], logits[stays])
    assert stays[0].sum() == 3
    assert stays[2].all()


@pytest.mark.parametrize(
    ("logits", "settings", "expected"),
    [
        ([1.0, 3.0, 2.0, 2.0, 2.0], {"top_k": 2}, [1, 2, 3, 4]),  # as likely as the second
        ([1.0, 1.0, 1.0], {"top_k": 1}, [0, 1, 2]),
        ([0.0, 0.0, 0.0, 0.0], {"top_p": 0.3}, [0, 1, 2, 3]),  # equal tokens share their fate
        ([5.0, 0.0, 0.0], {"top_p": 0.9}, [0]),
        ([0.0, 0.0, -9.0], {"top_p": 0.9}, [0, 1]),
        ([2.0, 1.0, 0.0], {"top_p": 1e-9}, [0]),  # the most likely always stays
        ([2.0, 2.0, 1.9], {"min_p": 1.0}, [0, 1]),
        ([NOTHING, 1.0, NOTHING], {"top_k": 2, "top_p": 0.5, "min_p": 0.5}, [1]),
    ],
)
def test_edges(logits: list[float], settings: dict[str, float], expected: list[int]) -> None:
    assert kept(logits, **settings) == expected  # type: ignore[arg-type]


def test_order_min_p_then_top_k_then_top_p() -> None:
    logits = [math.log(p) for p in (0.5, 0.3, 0.1, 0.06, 0.04)]
    assert kept(logits, top_p=0.85) == [0, 1, 2]
    # of the two that top-k leaves, the first has 0.625 of the mass
    assert kept(logits, top_k=2, top_p=0.6) == [0]
    assert kept(logits, top_p=0.6) == [0, 1]
    # of the two that min-p leaves likewise
    assert kept(logits, min_p=0.5, top_p=0.6) == [0]


@pytest.mark.parametrize("spread", [3.0, 0.01, 0.0])
def test_width_only_saves_work(spread: float) -> None:
    generator = torch.Generator().manual_seed(3)
    # a coarse grid: ties at and beyond the last of the largest
    logits = (torch.randn(40, 500, generator=generator) * spread * 4).round() / 4
    top_k, top_p, min_p = random_settings(40, generator)
    top_k[top_k == 0] = 9
    whole = top_k_top_p_min_p(logits, top_k, top_p, min_p)
    assert torch.equal(top_k_top_p_min_p(logits, top_k, top_p, min_p, width=64), whole)


def test_rows_do_not_see_each_other() -> None:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(64, 5003, generator=generator)
    top_k, top_p, min_p = random_settings(64, generator)
    whole = top_k_top_p_min_p(logits, top_k, top_p, min_p)
    for row in range(0, 64, 7):
        one = slice(row, row + 1)
        assert torch.equal(top_k_top_p_min_p(logits[one], top_k[one], top_p[one], min_p[one])[0], whole[row])
