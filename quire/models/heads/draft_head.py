"""DraftHead: EAGLE, EAGLE-3 and MTP: from a word and the feature before it to the feature of the next place."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from quire.layers.attention import Angles
from quire.layers.batch import Batch
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.pair_norm import PairNorm
from quire.layers.policy import WeightPolicy
from quire.layers.rope import Rope
from quire.layers.token_map import TokenMap
from quire.layers.vocabulary_share import VocabularyShare
from quire.models.gate import LayerGate
from quire.models.language_model import LanguageModel
from quire.models.layer import Layer, make_layer
from quire.ops.lora_tensors import AdapterRows
from quire.spec.model import ModelSpec


class DraftHead(nn.Module):
    """As its spec says, which may be that of one rank. What it shares with the large model is that one's."""

    def __init__(self, spec: ModelSpec, policy: WeightPolicy, large: LanguageModel) -> None:
        super().__init__()
        head = spec.draft_head
        assert head is not None, "it is no head that drafts"
        assert head.fuse is not None, "it joins nothing"
        self.spec = spec
        self.feature_size = spec.hidden_size
        self.taps = head.taps
        self._kind = head.kind
        self._fuse = Linear(head.fuse, policy)
        self._norms: PairNorm | None = None
        if head.word_norm is not None and head.feature_norm is not None:
            self._norms = PairNorm(head.word_norm, head.feature_norm, policy)
        layers = [make_layer(layer, index, policy) for index, layer in enumerate(spec.layers)]
        self.layers = nn.ModuleList(layers)
        self._rope_of_layer = [layer.rope for layer in layers]
        self._norm = None if spec.norm is None else Norm(spec.norm, policy)
        self._head = None if spec.head is None else Linear(spec.head, policy)
        self._num_said = spec.vocab_size if head.token_map is None else head.token_map.shape[0]
        """Tokens that it can say."""
        self.token_map = None if head.token_map is None else TokenMap(head.token_map, spec.vocab_size, policy)
        self._own_words: Embedding | None = None
        if head.owns_words:
            words = Embedding if policy.group is None else VocabularyShare
            self._own_words = words(spec.embedding.words, policy)
        self._group = policy.group
        """The ranks that it is cut for; None: all of it is here."""
        self._large = (large,)
        """In a tuple: its weights are not this module's."""
        self.ropes = nn.ModuleList([Rope(rope, policy.device) for rope in spec.ropes])
        self.gate = LayerGate()

    @property
    def has_own_logits(self) -> bool:
        """Whether `project` makes logits; otherwise what it gives is for the large model's matrix of them."""
        return self._head is not None

    def words(self, input_ids: Tensor) -> Tensor:
        """[tokens, hidden]."""
        table = self._large[0].words if self._own_words is None else self._own_words
        found: Tensor = table(input_ids)
        return found

    def features(self, hidden: Tensor, taps: Sequence[Tensor]) -> Tensor:
        """Of tokens, by what the large model made of them: after its last norm, and before the layers in `taps`."""
        if not self.taps:
            return hidden
        joined: Tensor = self._fuse(torch.cat(tuple(taps), dim=1))
        return joined

    def angles(self, positions: Tensor, lengths: Tensor) -> list[Angles]:
        return [rope(positions, lengths) for rope in self.ropes]

    def body(self, x: Tensor, angles: Sequence[Angles], batch: Batch) -> Tensor:
        """From words and features side by side, [tokens, 2 * hidden], to the features that follow. As a decoder's body,
        something to record."""
        read, added = x, None
        if self._norms is not None:
            read = self._norms(read)
        if self._kind == "eagle3":
            layer, rope = self.layers[0], self._rope_of_layer[0]
            assert isinstance(layer, Layer)
            turned = None if rope is None else angles[rope]
            x, added = layer.read(_second_half(x, self.feature_size), read, turned, batch)
        else:
            x = self._fuse(read)
            for layer, rope in zip(self.layers, self._rope_of_layer, strict=True):
                x, added = layer(x, added, None if rope is None else angles[rope], batch)
        if self._kind == "mtp" and self._norm is not None:  # features of the large model are normed too
            normed: Tensor = self._norm(x) if added is None else self._norm.add(x, added)[1]
            return normed
        return x if added is None else x + added

    def project(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Logits of the tokens that it can say, where the matrix is its own: something to record. Of several ranks the
        first has them."""
        assert self._head is not None, "the matrix is the large model's"
        logits: Tensor = self._head(self.before_logits(hidden))
        return logits if self._group is None else self._group.gather_columns(logits, self._num_said)

    def before_logits(self, hidden: Tensor) -> Tensor:
        """What the matrix of logits reads."""
        if self._norm is None or self._kind == "mtp":
            return hidden
        normed: Tensor = self._norm(hidden)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        return self.finish_logits(self.project(hidden))

    def finish_logits(self, logits: Tensor) -> Tensor:
        """Of the whole vocabulary."""
        return logits if self.token_map is None else self.token_map.spread(logits)


def _second_half(pair: Any, size: int) -> Any:
    if pair.device.type == "tape":
        return pair.view(-1, 2, size).split([1, 1], 1)[1].view(-1, size)
    return pair[:, size:].contiguous()
