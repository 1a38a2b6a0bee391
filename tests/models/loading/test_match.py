"""A checkpoint against its spec: all is found in the order of the files, or what is wrong is named."""

from collections.abc import Iterator

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.match import Matched, match
from quire.models.loading.spans import TensorSpan
from quire.models.loading.tensor_names import gguf_names, safetensors_names
from quire.models.registry import describe
from quire.spec.model import ModelSpec
from tests.models.loading.files import TINY, llama_shapes

SPEC = describe(TINY, "config.json")
TIED = describe({**TINY, "tie_word_embeddings": True}, "config.json")
NORM, HEAD = "model.norm.weight", "lm_head.weight"


def spans(**changes: TensorSpan | None) -> Iterator[TensorSpan]:
    """Of the tiny Llama, some replaced or, with None, left out; dots of names are double underscores."""
    changed = {name.replace("__", "."): span for name, span in changes.items()}
    for name, (_, shape) in llama_shapes(TINY).items():
        span = changed.pop(name) if name in changed else TensorSpan(name, "bfloat16", tuple(shape), 0, 0)
        if span is not None:
            yield span
    yield from (span for span in changed.values() if span is not None)


def matched(spec: ModelSpec = SPEC, **changes: TensorSpan | None) -> Matched:
    found = list(spans(**changes))
    return match(spec, found, safetensors_names(spec, [span.name for span in found]), "tiny")


def span(name: str, dtype: str = "bfloat16", shape: tuple[int, ...] = (8,)) -> TensorSpan:
    return TensorSpan(name, dtype, shape, 0, 0)


def test_everything_in_the_order_of_the_files() -> None:
    found = matched()
    assert list(found.found) == list(llama_shapes(TINY))
    assert found.spec is SPEC
    assert all(name == one.tensor.name == one.span.name for name, one in found.found.items())


def test_a_missing_head_leaves_a_model_that_embeds() -> None:
    found = matched(lm_head__weight=None)
    assert not found.spec.generates
    assert HEAD not in found.found
    assert [tensor.name for tensor in found.spec.tensors()] == [t.name for t in SPEC.tensors() if t.name != HEAD]


def test_a_tied_model_needs_no_head_and_may_bring_one() -> None:
    for changes in ({}, {"lm_head__weight": None}):
        found = matched(TIED, **changes)
        assert found.spec.generates
        assert HEAD not in found.found


def test_a_missing_tensor_is_no_model_without_a_head() -> None:
    with pytest.raises(
        CheckpointError, match=r"tiny lacks a tensor that its config asks for, model\.norm\.weight alone"
    ):
        matched(model__norm__weight=None)
    with pytest.raises(CheckpointError, match=r"tiny lacks 2 tensors .*, model\.norm\.weight among them|lm_head"):
        matched(model__norm__weight=None, lm_head__weight=None)


def test_one_tensor_by_two_names() -> None:
    with pytest.raises(
        CheckpointError, match=r"holds tensor 'model\.norm\.weight' twice, the second as 'norm\.weight'"
    ):
        matched(norm__weight=span("norm.weight"))


def test_an_unknown_tensor_and_what_was_meant() -> None:
    with pytest.raises(
        CheckpointError, match=r"tensor 'model\.norm\.wieght' has no place in a LlamaForCausalLM of 2 la"
    ):
        matched(x=span("model.norm.wieght"))
    with pytest.raises(CheckpointError, match=r"has no place .*Did you mean 'blk\.0\.attn_q\.weight'"):
        match(SPEC, [span("blk.0.attn_qq.weight")], gguf_names(SPEC), "tiny.gguf")


def test_however_long_a_name_is_the_message_is_short() -> None:
    with pytest.raises(CheckpointError, match="has no place") as caught:
        matched(x=span("x" * 60_000))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("shape", [(9,), (8, 1), (), (1, 8)])
def test_a_wrong_shape_is_refused_with_both_shapes(shape: tuple[int, ...]) -> None:
    message = rf"'model\.norm\.weight' has shape \{list(shape)}, and the model's config asks for \[8\]"
    with pytest.raises(CheckpointError, match=message):
        matched(model__norm__weight=span(NORM, shape=shape))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "int32", "uint8", "bool", "float4_e2m1", "Q8_0"])
def test_vectors_are_plain(dtype: str) -> None:
    with pytest.raises(CheckpointError, match=f"is stored as {dtype}, which quire does not run there; it runs a plain"):
        matched(model__norm__weight=span(NORM, dtype))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "int32", "uint8", "bool"])
def test_matrices_are_plain_or_of_ggml(dtype: str) -> None:
    with pytest.raises(CheckpointError, match=f"is stored as {dtype}.*it runs float32, float16 and bfloat16 weights"):
        matched(lm_head__weight=span(HEAD, dtype, (32, 8)))
    assert matched(lm_head__weight=span(HEAD, "Q8_0", (32, 8))).found[HEAD].span.dtype == "Q8_0"
