"""LanguageModel: the shape all families share: embed, layers one after the other, a last norm, an output head."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from quire.layers.attention import Angles
from quire.layers.batch import Batch
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.layers.rope import Rope
from quire.models.answer_logits import AnswerLogits, contrast
from quire.models.audio_encoder import AudioEncoder
from quire.models.audio_tower import AudioTower
from quire.models.classifier import Classifier
from quire.models.gate import LayerGate
from quire.models.joint_embedder import JointEmbedder
from quire.models.layer import CrossLayer, make_layer
from quire.models.relative_bias import RelativeBias
from quire.models.token_embedding import TokenEmbedding
from quire.models.vision_tower import VisionTower
from quire.ops.lora_tensors import AdapterRows
from quire.spec.model import ClassifierSpec, ModelSpec


class LanguageModel(nn.Module):
    """A decoder or an encoder, as its spec says."""

    def __init__(self, spec: ModelSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self.spec = spec
        self._embedding = TokenEmbedding(spec.embedding, policy) if spec.has_words else None
        """None: a later stage of a pipeline, which hidden states enter."""
        layers = [make_layer(layer, index, policy.of_layer(index)) for index, layer in enumerate(spec.layers)]
        self.layers = nn.ModuleList(layers)
        self._rope_of_layer = [layer.rope for layer in layers]
        self._norm = None if spec.norm is None else Norm(spec.norm, policy)
        self._head = None if spec.head is None else Linear(spec.head, policy)
        """None: tied to the embedding."""
        self._head_projection = None if spec.head_projection is None else Linear(spec.head_projection, policy)
        self.ropes = nn.ModuleList([Rope(rope, policy.device) for rope in spec.ropes])
        self._relative_bias = None if spec.relative_bias is None else RelativeBias(spec.relative_bias, policy)
        self._classifier = None if spec.classifier is None else self._make_classifier(spec.classifier, policy)
        self.vision = None if spec.vision is None else VisionTower(spec.vision, policy.of_tower())
        """What makes embeddings of images; None: it reads texts alone."""
        self.audio = None if spec.audio is None else AudioTower(spec.audio, policy.of_tower())
        """What makes embeddings of sound."""
        self.joint = None if spec.joint is None else JointEmbedder(spec.joint, policy.of_tower())
        """What makes vectors of texts and images alike."""
        self.encoder = None if spec.encoder is None else AudioEncoder(spec.encoder, policy)
        """What reads sound, in models that write what is said."""
        self._group = policy.group
        self.gate = LayerGate()

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """Hidden states [tokens, hidden] after the last norm, of those that the batch wants."""
        self.gate.wait_for_ends()
        return self.forward_from(self.embed(input_ids, positions, batch), positions, batch)

    def forward_from(self, x: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """The same of what enters the first layer; `x` may be overwritten."""
        batch, temperatures = self.with_score_bias(batch), self.temperatures(positions)
        if temperatures is not None:
            batch = replace(batch, temperatures=temperatures)
        return self.body(x, self.angles(positions, batch.lengths_for_angles), batch)

    def encode(self, spectrograms: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Of [windows, frames, mel bins]: each layer's keys and values, [windows, positions, heads, head_dim]."""
        assert self.encoder is not None, "the model reads no sound"
        self.gate.wait_for_ends()
        encoded = self.encoder(spectrograms)
        for index, layer in enumerate(self.layers):
            self.gate.wait_for_layer(index)
            assert isinstance(layer, CrossLayer), "layers of such a model look at what is encoded"
            yield layer.cross.keys_values(encoded)

    def embed(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """What enters the first layer, [tokens, hidden]."""
        assert self._embedding is not None, "hidden states enter this stage"
        embedded: Tensor = self._embedding(input_ids, positions, batch)
        return embedded

    def with_score_bias(self, batch: Batch) -> Batch:
        """The batch with what encoders of MPNet's kind add to scores."""
        if self._relative_bias is None:
            return batch
        return replace(batch, score_bias=self._relative_bias(batch.lengths))

    def temperatures(self, positions: Tensor) -> Tensor | None:
        """What Llama 4 multiplies the queries of some layers by, float32 [tokens]; None: other models do not."""
        spec = self.spec.temperature
        if spec is None:
            return None
        stretches = ((positions + 1) // spec.stretch).float()
        return torch.log1p(stretches) * spec.scale + 1.0

    @property
    def words(self) -> Embedding:
        """What tokens are looked up in."""
        assert self._embedding is not None, "hidden states enter this stage"
        return self._embedding.words

    @property
    def words_alone(self) -> Embedding | None:
        """What tokens are looked up in, where `embed` does no more than that and the scale; else None."""
        return None if self._embedding is None else self._embedding.words_alone

    def angles(self, positions: Tensor, lengths: Tensor) -> list[Angles]:
        """cos and sin of every set of angles that layers turn by."""
        return [rope(positions, lengths) for rope in self.ropes]

    def body(self, x: Tensor, angles: Sequence[Angles], batch: Batch) -> Tensor:
        """All layers and the last norm: what can be recorded once and run as one program."""
        added: Tensor | None = None
        last = len(self._rope_of_layer) - 1
        for index, (layer, rope) in enumerate(zip(self.layers, self._rope_of_layer, strict=True)):
            self.gate.wait_for_layer(index)
            if batch.taps is not None:
                batch.taps.take(index, x, added)
            output_rows = batch.output_rows if index == last else None
            x, added = layer(x, added, None if rope is None else angles[rope], batch, output_rows)
            if batch.embeddings is not None and index < len(batch.embeddings.deep):
                x = x.index_add(0, batch.embeddings.places, batch.embeddings.deep[index].to(x.dtype))
        if self._norm is None:
            return x if added is None else x + added
        normed: Tensor = self._norm(x) if added is None else self._norm.add(x, added)[1]
        return normed

    def logits(self, hidden: Tensor, prompts: range = range(0), adapters: AdapterRows | None = None) -> Tensor:
        """[rows, vocabulary], in the type of the head's matmul: who draws from them widens what it must.

        Which rows are of `prompts` makes a difference only to a recorded model.
        """
        return self.finish_logits(self.project(hidden, adapters))

    def project(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """What the output head makes of hidden states: as `body`, something to record."""
        if self._head_projection is not None:
            hidden = self._head_projection(hidden)
        head: Callable[..., Tensor] | None = self._head
        if head is None:
            assert self._embedding is not None, "the last stage has the words, where they are the head"
            head = self._embedding.project
        output: Tensor = head(hidden, adapters)
        return output if self._group is None else self._group.gather_columns(output, self.spec.vocab_size)

    def finish_logits(self, logits: Tensor) -> Tensor:
        """Scaled and bounded, in families that do."""
        if self.spec.logit_scale != 1.0:
            logits = logits * self.spec.logit_scale
        cap = self.spec.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits.float() / cap)

    def classify(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """[sequences, labels] in float32, before any activation, of the hidden states of whole sequences."""
        assert self._classifier is not None, "the model has no classifier"
        if self._head_projection is not None:
            hidden = self._head_projection(hidden)
        logits: Tensor = self._classifier(hidden, starts)
        return contrast(self.finish_logits(logits)) if isinstance(self._classifier, AnswerLogits) else logits

    def _make_classifier(self, spec: ClassifierSpec, policy: WeightPolicy) -> Classifier | AnswerLogits:
        if not spec.answer_ids:
            return Classifier(spec, policy)
        return AnswerLogits(spec, policy, self.words if spec.out is None else None)
