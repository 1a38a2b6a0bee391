"""What masks are read as, and what is refused because quire would attend otherwise."""

import pytest
import torch
from torch import Tensor

from quire.models.fallback.attention import NotForFallback
from quire.models.fallback.masks import MaskRule, mask_function, seen_window, window_of

CPU = torch.device("cpu")


class Config:
    max_position_embeddings = 100


def causal(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key <= query


def sliding(window: int) -> MaskRule:
    return lambda sequence, head, query, key: (key <= query) & (key > query - window)


def made(rule: MaskRule, length: int = 6) -> Tensor:
    return mask_function(q_length=length, kv_length=length, mask_function=rule, config=Config(), device=CPU)


@pytest.mark.parametrize("window", [1, 2, 8, 50, 98])
def test_a_window_is_found_however_long_it_is(window: int) -> None:
    assert window_of(sliding(window), 100, CPU) == window


@pytest.mark.parametrize("rule", [causal, sliding(100), sliding(1000)])
def test_a_window_that_no_token_reaches_is_none(rule: MaskRule) -> None:
    assert window_of(rule, 100, CPU) is None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda s, h, query, key: key <= query + 1, "something else than the positions before it"),
        (lambda s, h, query, key: key < query, "something else than the positions before it"),
        (lambda s, h, query, key: (key <= query) & ((query < 20) | (key != 3)), "something else than"),
        (lambda s, h, query, key: (key <= query) & (key // 40 == query // 40), "chunked attention"),
    ],
    ids=["sees what comes", "not itself", "with a hole", "in chunks"],
)
def test_other_masks_are_refused(rule: MaskRule, message: str) -> None:
    with pytest.raises(NotForFallback, match=message):
        window_of(rule, 100, CPU)
    mask = made(rule)  # which is no error yet: a layer would have to use it
    with pytest.raises(NotForFallback, match=message):
        seen_window(mask)


def test_a_mask_tells_its_window() -> None:
    mask = made(sliding(3))
    assert seen_window(mask) == 3
    assert seen_window(made(causal)) is None
    expected = torch.ones(6, 6).tril().triu(-2).bool()
    assert torch.equal(mask[0, 0], expected)


def test_a_mask_that_was_changed_or_left_out_is_refused() -> None:
    with pytest.raises(NotForFallback, match="changes masks before they reach attention"):
        seen_window(made(causal).float() + torch.ones(6, 6))
    with pytest.raises(NotForFallback, match="without a causal mask"):
        seen_window(None)
