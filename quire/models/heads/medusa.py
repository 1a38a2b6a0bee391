"""Medusa: several heads beside the large model's own, each of which says a token further ahead from the same hidden
state."""

from collections.abc import Collection

from quire.core.errors import CheckpointError
from quire.models.families.blocks import table
from quire.models.heads.parts import has
from quire.models.loading.hf_fields import HFFields
from quire.spec.draft_head import DraftHeadSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import EmbeddingSpec, ModelSpec


def describe_medusa(fields: HFFields, names: Collection[str], large: ModelSpec) -> ModelSpec:
    """Its config says how many heads there are, and of how many residual blocks each."""
    count, depth = fields.size("medusa_num_heads", most=32), fields.size_or_none("medusa_num_layers", most=16) or 1
    hidden = large.hidden_size
    width = fields.size_or_none("hidden_size") or hidden
    if width != hidden:
        raise CheckpointError(
            f"{fields.source} describes heads of hidden size {width}, and {large.architecture} has {hidden}; they were "
            "made for another model."
        )
    chains = tuple(_chain(number, depth, names, large) for number in range(count))
    return ModelSpec(
        architecture="Medusa",
        vocab_size=large.vocab_size,
        hidden_size=hidden,
        max_position=large.max_position,
        layers=(),
        embedding=EmbeddingSpec(table("embed_tokens", "words", large.vocab_size, hidden)),
        norm=None,
        prefix="",
        moved=(("medusa_head.", ""), ("medusa_heads.", "")),
        draft_head=DraftHeadSpec("medusa", chains=chains),
    )


def _chain(number: int, depth: int, names: Collection[str], large: ModelSpec) -> tuple[MatrixSpec, ...]:
    hidden = large.hidden_size
    blocks = [
        MatrixSpec((Part(f"{number}.{place}.linear", "block", hidden),), hidden, "none", bias=True)
        for place in range(depth)
    ]
    bias = has(names, f"{number}.{depth}.bias")
    return *blocks, MatrixSpec((Part(f"{number}.{depth}", "head", large.vocab_size),), hidden, "rows", bias)
