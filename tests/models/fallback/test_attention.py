"""What quire's attention does for a layer of transformers, and what it does not take from one."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from quire.layers.attention import PagedAttention
from quire.layers.batch import Batch, KVLayer
from quire.models.fallback.attention import STEP, NotForFallback, PagedStep, attention_function

SCALE = 0.5
KV_HEADS = 2


class Layer(nn.Module):
    layer_idx: Any = 0


def step(tokens: int = 3, softcap: float | None = None) -> PagedStep:
    numbers = torch.arange(tokens)
    batch = Batch(
        query_starts=torch.tensor([0, tokens]),
        lengths=torch.tensor([tokens]),
        lengths_for_angles=torch.full((tokens,), tokens),
        tables=[torch.tensor([[0]])],
        slots=[numbers],
        kv=[KVLayer(torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8), 0)],
    )
    return PagedStep(batch, [PagedAttention(0, KV_HEADS, SCALE, softcap=softcap)])


def heads(tokens: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, count, tokens, 8, generator=generator) for count in (4, 2, 2))
    return query, key, value


def test_it_attends_causally_with_shared_keys() -> None:
    query, key, value = heads()
    found, weights = attention_function(Layer(), query, key, value, None, scaling=SCALE, dropout=0.0, **{STEP: step()})
    expected = nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=SCALE, enable_gqa=True
    )
    assert weights is None
    torch.testing.assert_close(found, expected.transpose(1, 2))


@pytest.mark.parametrize("given", [{"position_bias": torch.ones(1)}, {"s_aux": torch.ones(4)}, {"dropout": 0.1}])
def test_what_it_does_not_know_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(NotForFallback, match=f"give attention {next(iter(given))}, which quire's does not know"):
        attention_function(Layer(), *heads(), None, **given, **{STEP: step()})


def test_what_is_turned_off_has_no_effect() -> None:
    attention_function(Layer(), *heads(), None, head_mask=None, output_attentions=False, **{STEP: step()})


@pytest.mark.parametrize(
    ("mask", "given", "message"),
    [
        (torch.zeros(1), {}, "in another way than when it was tried out"),
        (None, {"scaling": 0.25}, "in another way than when it was tried out"),
        (None, {"softcap": 30.0}, "in another way than when it was tried out"),
        (None, {"is_causal": False}, "is not causal"),
    ],
)
def test_a_layer_that_changes_its_mind_is_refused(mask: Tensor | None, given: dict[str, Any], message: str) -> None:
    with pytest.raises(NotForFallback, match=message):
        attention_function(Layer(), *heads(), mask, **given, **{STEP: step()})


def test_without_a_step_or_a_layers_number_it_is_refused() -> None:
    with pytest.raises(NotForFallback, match="do not hand keyword arguments down"):
        attention_function(Layer(), *heads(), None)
    layer = Layer()
    layer.layer_idx = None
    with pytest.raises(NotForFallback, match="does not say which layer"):
        attention_function(layer, *heads(), None, **{STEP: step()})
