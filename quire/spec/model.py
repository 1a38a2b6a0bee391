"""ModelSpec: all there is to know of a model but its weights' values. Made by a family, read by everyone else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from quire.core.errors import CheckpointError
from quire.core.kv_variant import LONG_VARIANT
from quire.core.pooling import Pooling
from quire.spec.audio_encoder import AudioEncoderSpec
from quire.spec.audio_tower import AudioTowerSpec
from quire.spec.cache import CacheSpec, CrossCache
from quire.spec.draft_head import DraftHeadSpec
from quire.spec.experts import ExpertsSpec
from quire.spec.joint import JointSpec
from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import Activation
from quire.spec.norm import NormSpec
from quire.spec.rope import RopeSpec
from quire.spec.tensor import TensorSpec
from quire.spec.vision import VisionSpec


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """What enters the first layer: words, and what is added to them."""

    words: MatrixSpec
    positions: MatrixSpec | None = None
    """A learned table; positions that turn heads are the layers'."""
    first_position: int = 0
    """The row of that table that belongs to a sequence's first token."""
    types: MatrixSpec | None = None
    """Of token types: 0, and 1 for the second text of a pair."""
    norm: NormSpec | None = None
    scale: float | None = None
    projection: MatrixSpec | None = None
    """From the width of the words to the model's, where they differ."""


@dataclass(frozen=True, slots=True)
class RelativeBiasSpec:
    """What encoders of MPNet's kind add to scores, by how far two tokens are apart."""

    table: MatrixSpec
    """[buckets, heads]."""
    max_distance: int


@dataclass(frozen=True, slots=True)
class TemperatureSpec:
    """What queries far into a sequence are multiplied by: 1 + scale * log(1 + (position + 1) // stretch)."""

    scale: float
    stretch: int


@dataclass(frozen=True, slots=True)
class ClassifierSpec:
    """From one hidden state of a sequence to a number for each label."""

    labels: tuple[str, ...]
    pooling: Pooling
    out: MatrixSpec | None
    """None: its rows are those of the words, as the output head's are where it is tied."""
    dense: MatrixSpec | None = None
    activation: Activation | str = "tanh"
    """Of what `dense` gives."""
    norm: NormSpec | None = None
    multi_label: bool = False
    """Whether any number of labels may hold at once."""
    regression: bool = False
    """Whether it was trained to give numbers, of which nothing is to be made."""
    answer_ids: tuple[int, ...] = ()
    """Of a causal LM that is a classifier by its answer: the token whose logit is the number of the only label, perhaps
    behind the one whose logit is subtracted."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as its family describes it."""

    architecture: str
    """The checkpoint's own name of its class, for example `LlamaForCausalLM`."""
    vocab_size: int
    hidden_size: int
    max_position: int
    """The longest context the checkpoint was made for, in tokens."""
    layers: tuple[LayerSpec, ...]
    embedding: EmbeddingSpec
    norm: NormSpec | None
    head: MatrixSpec | None = None
    """What makes logits of hidden states; None where it is tied, or where there is none."""
    tied: bool = False
    """Whether the embedding of words is the output head too."""
    head_projection: MatrixSpec | None = None
    """From the model's width to the head's, where they differ."""
    ropes: tuple[RopeSpec, ...] = ()
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    relative_bias: RelativeBiasSpec | None = None
    temperature: TemperatureSpec | None = None
    """Of the queries of layers that have it."""
    classifier: ClassifierSpec | None = None
    encoder: AudioEncoderSpec | None = None
    """What makes that which layers with cross-attention look at."""
    max_position_source: str = "the checkpoint"
    prefix: str = "model."
    """What names of tensors begin with, and what checkpoints that were saved without their head leave out."""
    outer_prefix: str = ""
    """What all names begin with in checkpoints of a model that this is a part of."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Patterns of tensors of other parts, and why these do not run."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Endings of names in old checkpoints, and what they are now."""
    moved: tuple[tuple[str, str], ...] = ()
    """Beginnings of names where a model is part of another, and what they are here; the first that fits."""
    vision: VisionSpec | None = None
    """What makes embeddings of images; None: the model reads texts alone."""
    audio: AudioTowerSpec | None = None
    """What makes embeddings of sound."""
    joint: JointSpec | None = None
    """What makes vectors of texts and images alike, in models that only embed."""
    unused: tuple[str, ...] = ()
    """Patterns of tensors that checkpoints of the family hold and the model does not need."""
    takes_tokens: bool = True
    """False in a later stage of a pipeline: hidden states enter it, and of the embedding it has the words alone, where
    they are the output head too."""
    keeps_words: bool = False
    """Whether such a stage has them in any case, for a head that drafts."""
    draft_head: DraftHeadSpec | None = None
    """How it reads another model's hidden states, where it is a head that drafts for that one."""
    mtp_layer: LayerSpec | None = None
    """The layer behind the last, which was trained to draft (multi-token prediction) and is no part of the answers."""
    is_described: bool = True
    """False: only its shape is known, and its weights are what its files hold; a library brings the modules."""

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_heads(self) -> int:
        return self.layers[0].attention.num_heads

    @property
    def num_kv_heads(self) -> int:
        return self.layers[0].attention.num_kv_heads

    @property
    def head_dim(self) -> int:
        return self.layers[0].attention.head_dim

    @property
    def windows(self) -> tuple[int | None, ...]:
        """How far each layer looks back, by a sliding window or in chunks; None attends to everything."""
        return tuple(layer.attention.window or layer.attention.chunk for layer in self.layers)

    @property
    def generates(self) -> bool:
        """Whether it has an output head: other models embed or classify texts."""
        return self.tied or self.head is not None

    @property
    def is_encoder(self) -> bool:
        """Whether every token sees its whole sequence: the model embeds texts and generates none."""
        return not self.layers[0].attention.causal

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        """What a token leaves in each layer."""
        found = [layer.attention.cache for layer in self.layers]
        if None in found:
            raise CheckpointError(f"{self.architecture} embeds texts and generates none: it keeps no KV")
        return tuple(cache for cache in found if cache is not None)

    @property
    def cross_caches(self) -> tuple[CrossCache, ...]:
        """What each layer keeps of a sequence's encoded media; empty in models without an encoder."""
        return tuple(layer.cross.cache for layer in self.layers if layer.cross is not None)

    @property
    def angles_change_at(self) -> int | None:
        """Sequences longer than this are computed with other position angles than shorter ones (dynamic, longrope)."""
        return min((rope.changes_at for rope in self.ropes if rope.changes_at is not None), default=None)

    @property
    def angles_follow_length(self) -> bool:
        """Whether those angles differ with every length (dynamic); what is computed then stays. Otherwise there are two
        sets (longrope), and a sequence that outgrows the first is computed anew with the second.
        """
        return any(rope.kind == "dynamic" for rope in self.ropes)

    def kv_variant(self, prompt_length: int) -> str:
        """Prompts of different variants have different KV for the same tokens, so they share none."""
        changes_at = self.angles_change_at
        if changes_at is None or prompt_length <= changes_at:
            return ""
        return str(prompt_length) if self.angles_follow_length else LONG_VARIANT

    @property
    def num_parameters(self) -> int:
        """Tied matrices count once."""
        return sum(tensor.num_elements for tensor in self.tensors())

    @property
    def has_experts(self) -> bool:
        return any(isinstance(layer.mlp, ExpertsSpec) for layer in self.layers)

    @property
    def num_active_parameters(self) -> int:
        """Those that one token is multiplied by; of experts, its own."""
        experts = [layer.mlp for layer in self.layers if isinstance(layer.mlp, ExpertsSpec)]
        return self.num_parameters - round(sum(mlp.num_elements * (1 - mlp.touched(1)) for mlp in experts))

    @property
    def has_words(self) -> bool:
        """Whether the embedding, or at least its words, is part of it."""
        is_owner = self.draft_head is None or self.draft_head.owns_words
        return is_owner and (self.takes_tokens or self.tied or self.keeps_words)

    def matrices(self) -> Iterator[MatrixSpec]:
        """Every matrix, tied ones once."""
        embedding, bias, classifier = self.embedding, self.relative_bias, self.classifier
        if self.has_words:
            yield from _given(embedding.words, embedding.positions, embedding.types, embedding.projection)
        if self.encoder is not None:
            yield from self.encoder.matrices()
        for layer in self.layers:
            yield from layer.matrices()
        yield from _given(None if bias is None else bias.table, self.head_projection, self.head)
        if classifier is not None:
            yield from _given(classifier.dense, classifier.out)
        if self.draft_head is not None:
            yield from self.draft_head.matrices()

    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor that the model takes from a checkpoint."""
        if not self.is_described:
            return
        for matrix in self.matrices():
            yield from matrix.tensors()
        for layer in self.layers:
            yield from layer.vectors()
        norms = [norm for layer in self.layers for norm in layer.norms()]
        norms += () if self.encoder is None else self.encoder.norms()
        if self.draft_head is not None:
            norms += self.draft_head.norms()
            yield from self.draft_head.vectors()
        last = None if self.classifier is None else self.classifier.norm
        for norm in (self.embedding.norm, *norms, self.norm, last):
            if norm is not None:
                yield from norm.tensors()
        if self.vision is not None:
            yield from self.vision.tensors()
        if self.audio is not None:
            yield from self.audio.tensors()
        if self.joint is not None:
            yield from self.joint.tensors()

    @property
    def reads_media(self) -> bool:
        """Whether prompts may have placeholder tokens."""
        return self.vision is not None or self.audio is not None or self.joint is not None

    @property
    def embedding_size(self) -> int:
        """Of the vectors that it makes of texts."""
        return self.hidden_size if self.joint is None else self.joint.size

    @property
    def input_modalities(self) -> tuple[str, ...]:
        """What the model reads: text, image, audio."""
        if self.encoder is not None:
            return ("audio",)
        seen = () if self.vision is None and self.joint is None else ("image",)
        return ("text", *seen, *(() if self.audio is None else ("audio",)))

    @property
    def position_axes(self) -> int:
        """How many numbers a position is: three (time, height, width) where images have places of their own."""
        return max((len(rope.sections) for rope in self.ropes), default=0) or 1

    def without_head(self) -> "ModelSpec":
        """The same up to its last hidden states: embedding checkpoints often have no output head."""
        unneeded = [re.escape(tensor.name) for tensor in (self.head.tensors() if self.head else ())]
        return replace(self, head=None, tied=False, unused=(*self.unused, *unneeded))


def _given(*matrices: MatrixSpec | None) -> Iterator[MatrixSpec]:
    return (matrix for matrix in matrices if matrix is not None)
