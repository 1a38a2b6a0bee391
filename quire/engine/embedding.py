"""Embeddings: texts in, vectors and their likeness out. Knows text and limits; the executor knows the model."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.resolve_embedding import resolve_embedding
from quire.core.errors import CheckpointError, InvalidRequest, RequestTooLarge
from quire.core.outputs import EmbeddingOutput, EmbeddingRequestOutput, ScoringOutput, ScoringRequestOutput
from quire.core.pooling import POOLINGS, Pooling
from quire.engine.text.load import load_tokenizer
from quire.engine.text.tokenizer import Tokenizer
from quire.engine.text.truncation import encode_truncated
from quire.executor.embedding import EmbeddingExecutor, start_embedding
from quire.executor.inline import InlineExecutor, local_device_facts
from quire.models.loading.header import read_model_facts
from quire.models.loading.locate import locate
from quire.models.loading.sentence_settings import read_sentence_settings

TextPrompt = str | list[int]
_CLASSIFIER = "ForSequenceClassification"


class Embeddings:
    """A model that is ready to embed, in the caller's thread."""

    def __init__(
        self,
        executor: EmbeddingExecutor,
        tokenizer: Tokenizer | None,
        model: ModelFacts,
        max_length: int,
        *,
        lower_case: bool = False,
    ) -> None:
        """`lower_case`: the model was trained on texts in lower case, whatever its tokenizer does."""
        self.tokenizer = tokenizer
        self.model = model
        self.max_length = max_length
        self._executor = executor
        self._lower_case = lower_case
        self._numbers = count()

    def embed(
        self,
        prompts: Sequence[TextPrompt],
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """Vectors in the order of the prompts. `truncate_prompt_tokens` cuts longer ones; -1 to all the model takes."""
        if pooling is not None and pooling not in POOLINGS:
            raise InvalidRequest(
                f"pooling is {pooling!r}, but it must be one of {', '.join(POOLINGS)}", field="pooling"
            )
        limit = self._truncation(truncate_prompt_tokens)
        tokens = [self._encode(prompt, limit) for prompt in prompts]
        for ids in tokens:
            self._check(ids)
        vectors = self._executor.embed(tokens, pooling, normalized=normalize)
        return [
            EmbeddingRequestOutput(str(next(self._numbers)), EmbeddingOutput(vector), ids)
            for vector, ids in zip(vectors, tokens, strict=True)
        ]

    def score(
        self,
        text_1: str | Sequence[TextPrompt],
        text_2: str | Sequence[TextPrompt],
        *,
        truncate_prompt_tokens: int | None = None,
    ) -> list[ScoringRequestOutput]:
        """Cosine of the angle between embeddings, of each pair or of one text with each of the others."""
        first, second = _as_list(text_1), _as_list(text_2)
        if len(first) not in {1, len(second)}:
            raise InvalidRequest(
                f"text_1 has {len(first)} texts and text_2 {len(second)}; give one and several, or equally many",
                field="text_1",
            )
        outputs = self.embed([*first, *second], truncate_prompt_tokens=truncate_prompt_tokens)
        left, right = outputs[: len(first)], outputs[len(first) :]
        left = left * len(right) if len(left) == 1 else left
        return [self._scored(one, other) for one, other in zip(left, right, strict=True)]

    def close(self) -> None:
        """Free the model's memory. Safe to call twice."""
        self._executor.close()

    def _scored(self, one: EmbeddingRequestOutput, other: EmbeddingRequestOutput) -> ScoringRequestOutput:
        pad = None if self.tokenizer is None else self.tokenizer.special.pad
        between = [] if pad is None else [pad]
        products = zip(one.outputs.embedding, other.outputs.embedding, strict=True)
        return ScoringRequestOutput(
            f"{one.request_id}_{other.request_id}",
            ScoringOutput(sum(a * b for a, b in products)),
            [*one.prompt_token_ids, *between, *other.prompt_token_ids],
        )

    def _truncation(self, asked: int | None) -> int | None:
        if asked is None or 1 <= asked <= self.max_length:
            return asked
        if asked == -1:
            return self.max_length
        raise InvalidRequest(
            f"truncate_prompt_tokens is {asked}, but it must be from 1 to {self.max_length}, the model's context, or "
            "-1 for all of it",
            field="truncate_prompt_tokens",
        )

    def _encode(self, prompt: TextPrompt, limit: int | None) -> list[int]:
        if not isinstance(prompt, str):
            return list(prompt)[:limit]
        if self.tokenizer is None:
            raise InvalidRequest("the model was loaded without its tokenizer; give token ids", field="prompt")
        text = prompt.lower() if self._lower_case else prompt
        return self.tokenizer.encode(text) if limit is None else encode_truncated(self.tokenizer, text, limit)

    def _check(self, ids: list[int]) -> None:
        if not ids:
            raise InvalidRequest("a prompt has no tokens, and there is nothing to embed", field="prompt")
        if len(ids) > self.max_length:
            raise RequestTooLarge(
                f"a prompt has {len(ids)} tokens, and the model takes {self.max_length}; shorten it, or set "
                "truncate_prompt_tokens to -1 to have it cut",
                field="prompt",
            )
        lowest, highest = min(ids), max(ids)
        if lowest < 0 or highest >= self.model.spec.vocab_size:
            wrong = lowest if lowest < 0 else highest
            raise InvalidRequest(
                f"token id {wrong} is not in the vocabulary, which goes from 0 to {self.model.spec.vocab_size - 1}",
                field="prompt",
            )


def open_embedder(asked: EngineConfig) -> Embeddings:
    """Load the model that was asked for, encoder or decoder, for embeddings alone."""
    path = locate(asked.model.model, asked.model.revision)
    facts = read_model_facts(str(path))
    if facts.spec.architecture.endswith(_CLASSIFIER):
        raise CheckpointError(
            f"{path} is a classifier ({facts.spec.architecture}), whose hidden states are no embeddings; give an embedding "
            "model, which quire also scores texts with."
        )
    settings = read_sentence_settings(path)
    resolved = resolve_embedding(asked, facts, local_device_facts(), settings.max_length)
    executor = start_embedding(path, resolved, settings.pooling)
    tokenizer = load_tokenizer(path)
    return Embeddings(executor, tokenizer, facts, resolved.max_model_len, lower_case=settings.lower_case)


def share_model(
    executor: InlineExecutor, path: Path, tokenizer: Tokenizer | None, model: ModelFacts, max_length: int
) -> Embeddings:
    """Embeddings by the model at `path` that `executor` already runs; the weights are there once."""
    settings = read_sentence_settings(path)
    return Embeddings(
        executor.embedding(settings.pooling), tokenizer, model, max_length, lower_case=settings.lower_case
    )


def _as_list(texts: str | Sequence[TextPrompt]) -> list[TextPrompt]:
    return [texts] if isinstance(texts, str) else list(texts)
