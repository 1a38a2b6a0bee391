"""Batch: everything a model's forward needs beside its weights and tokens. There is no global context."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from quire.core.pasts import Pasts
from quire.ops.functional import Attend, paged_attention
from quire.ops.lora_tensors import AdapterRows


@dataclass(frozen=True, slots=True)
class KVLayer:
    """Where one layer keeps keys and values, or the latents that both are made of."""

    keys: Tensor  # [blocks, block_size, kv_heads, head_dim]; latents: [blocks, block_size, latent_dim + rope_dim]
    values: Tensor  # those of latents are the keys
    group: int
    """Which of the batch's tables and slots are this layer's."""
    scales: Tensor | None = None  # float32 [2]: what keys and values in fp8 are divided by; None: nothing


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors that take the place of tokens' own: media, or prompts given as embeddings."""

    values: Tensor  # [count, hidden]
    places: Tensor  # [count]: which tokens of the step they stand for
    deep: tuple[Tensor, ...] = ()  # [count, hidden] each: what is added to the same tokens behind the first layers


@dataclass(frozen=True, slots=True)
class EncodedLayer:
    """What one layer with cross-attention keeps of encoded media, by slot."""

    keys: Tensor  # [slots, positions, heads, head_dim]; positions are padded to whole blocks
    values: Tensor
    num_positions: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """Scores of heads that align tokens with positions, gathered while layers run."""

    heads: tuple[tuple[int, int], ...]
    """Layers and heads, in the order of the layers."""
    scores: list[Tensor] = field(default_factory=list)
    """Of each layer that has some of them, [tokens, heads, positions]."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder made of the media of a step's sequences."""

    layers: list[EncodedLayer]
    slots: Tensor  # int64 [tokens]: whose media each token looks at
    alignment: Alignment | None = None
    """Where scores are gathered, in steps that read them out."""


@dataclass(frozen=True, slots=True)
class Taps:
    """What enters some layers of a model, for a head that drafts by it; the model fills it in."""

    layers: Sequence[int]
    first_layer: int = 0
    """The number in the whole model of the first layer here; what enters earlier ones comes from stages before."""
    values: dict[int, Tensor] = field(default_factory=dict)
    """By layer: [tokens, hidden]."""

    def take(self, layer: int, x: Tensor, added: Tensor | None) -> None:
        """`x` is the residual stream before a layer, counted from the first here, to which `added` is still to be
        added."""
        number = self.first_layer + layer
        if number in self.layers:
            # the stream itself may be overwritten by what follows
            self.values[number] = x.clone() if added is None else x + added

    def in_order(self) -> list[Tensor]:
        return [self.values[layer] for layer in self.layers]


@dataclass(frozen=True, slots=True)
class Batch:
    """The tensors of one step. Sequences lie one after the other."""

    query_starts: Tensor  # [sequences + 1]
    lengths: Tensor  # [sequences]: tokens in the cache once this step has written its own
    lengths_for_angles: Tensor  # [tokens]: how long the sequence of each token counts as, for its position angles
    tables: list[Tensor]  # by KV group: [sequences, blocks]
    slots: list[Tensor]  # by KV group: [tokens]
    kv: list[KVLayer]  # by layer; empty for encoders
    output_rows: Tensor | None = None
    """Tokens whose hidden states the model returns, in this order; None: all. The last layer computes no others."""
    prompts: range = range(0)
    """Tokens of prompts, in one stretch; all others continue answers. Devices that compute many tokens otherwise than
    few go by this: what a token is does not depend on what it is computed with."""
    pasts: Pasts | None = None
    """Which sequences look back at tokens of earlier steps, where that makes a difference to how they are computed."""
    attend: Attend = paged_attention
    """What attends in this step."""
    types: Tensor | None = None  # [tokens]: of pairs of texts, 1 in the second; None: 0 everywhere
    score_bias: Tensor | None = None  # [heads, longest, longest]: what an encoder adds to all scores, by positions
    temperatures: Tensor | None = None  # float32 [tokens]: what some layers multiply queries by
    embeddings: Embeddings | None = None
    known_lengths: tuple[int, ...] | None = None
    """The lengths of an encoder's sequences where the host knows them, so that nothing waits for the device."""
    encoded: Encoded | None = None
    """In models with an encoder: what their layers look at beside tokens."""
    adapters: AdapterRows | None = None
    """The LoRA adapter of each token; None where no token has one."""
    output_adapters: AdapterRows | None = None
    """The same of `output_rows`."""
    taps: Taps | None = None
    """What is to be kept of the residual stream; None: nothing."""
