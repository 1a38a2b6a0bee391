"""Embeddings: texts in; vectors, their likeness and scores of labels out. Knows text and limits; the engine knows the
model."""

from collections.abc import Callable, Sequence
from itertools import count

from quire.config.facts import ModelFacts
from quire.core.errors import InvalidRequest, RequestTooLarge
from quire.core.media import MediaItem
from quire.core.outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from quire.core.pooling import POOLING_TASKS, POOLINGS, Pooling, PoolingTask, Readout, Rows
from quire.core.pooling_params import PoolingParams
from quire.models.loading.sentence_settings import SentenceSettings
from quire.text.labels import labels_of
from quire.text.pairs import PairTokens
from quire.text.reranker_prompt import reranker_frame
from quire.text.tokenizer import Tokenizer
from quire.text.truncation import encode_truncated

TextPrompt = str | list[int]
Pool = Callable[..., list[Rows]]
"""Prompts, what each is asked for and, where there are any, the media of each, to what was read off them."""


class Embeddings:
    """A model that is ready to embed or to classify."""

    def __init__(
        self,
        pool: Pool,
        tokenizer: Tokenizer | None,
        model: ModelFacts,
        max_length: int,
        settings: SentenceSettings | None = None,
    ) -> None:
        """`pool` reads out what it is given; `settings` are those that the files beside the model give."""
        self.tokenizer = tokenizer
        self.model = model
        self.max_length = max_length
        self._pool = pool
        self._settings = settings or SentenceSettings()
        self._labels = labels_of(model, self._settings)
        self._numbers = count()

    def embed(
        self,
        prompts: Sequence[TextPrompt],
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        truncate_prompt_tokens: int | None = None,
        prompt_name: str | None = None,
        media: Sequence[tuple[MediaItem, ...]] = (),
    ) -> list[EmbeddingRequestOutput]:
        """Vectors in the order of the prompts. `truncate_prompt_tokens` cuts longer ones; -1 to all the model takes.

        `prompt_name` names what is put before the texts, of the prompts that the model was trained with. `media` are
        what the tokens of each prompt stand for, in models that embed images too.
        """
        tokens = self._encode_all(prompts, truncate_prompt_tokens, prompt_name, is_embedded=True)
        vectors = self.run(tokens, "embed", pooling=pooling, normalize=normalize, media=media)
        return [
            EmbeddingRequestOutput(self._next_id(), EmbeddingOutput(vector), ids)
            for [vector], ids in zip(vectors, tokens, strict=True)
        ]

    def classify(
        self, prompts: Sequence[TextPrompt], *, use_activation: bool = True, truncate_prompt_tokens: int | None = None
    ) -> list[ClassificationRequestOutput]:
        """The probabilities of a classifier's labels, or its raw scores where `use_activation` is False."""
        tokens = self._encode_all(prompts, truncate_prompt_tokens)
        return [
            ClassificationRequestOutput(
                self._next_id(),
                ClassificationOutput(self._labels.read("classify", scores, use_activation=use_activation)),
                ids,
            )
            for [scores], ids in zip(self.run(tokens, "classify"), tokens, strict=True)
        ]

    def encode(
        self,
        prompts: Sequence[TextPrompt],
        *,
        pooling_task: PoolingTask | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        use_activation: bool | None = None,
        truncate_prompt_tokens: int | None = None,
        prompt_name: str | None = None,
    ) -> list[PoolingRequestOutput]:
        """What a task reads off the texts; left out: probabilities of a classifier, else a vector for every token."""
        task = self._labels.usual_task if pooling_task is None else pooling_task
        if task not in POOLING_TASKS:
            raise InvalidRequest(
                f"pooling_task is {task!r}, but it must be one of {', '.join(POOLING_TASKS)}", field="pooling_task"
            )
        self._labels.check(task)
        self._labels.check_settings(
            task, pooling=pooling, normalize=normalize, use_activation=use_activation, prompt_name=prompt_name
        )
        if task in ("embed", "token_embed"):
            tokens = self._encode_all(prompts, truncate_prompt_tokens, prompt_name, is_embedded=True)
            found = self.run(tokens, task, pooling=pooling, normalize=normalize is not False)
        else:
            tokens = self._encode_all(prompts, truncate_prompt_tokens)
            found = [
                [self._labels.read(task, scores, use_activation=use_activation is not False)]
                for [scores] in self.run(tokens, "classify")
            ]
        return [
            PoolingRequestOutput(self._next_id(), PoolingOutput(rows if task == "token_embed" else rows[0]), ids)
            for rows, ids in zip(found, tokens, strict=True)
        ]

    def score(
        self,
        text_1: str | Sequence[TextPrompt],
        text_2: str | Sequence[TextPrompt],
        *,
        use_activation: bool | None = None,
        truncate_prompt_tokens: int | None = None,
        instruction: str | None = None,
    ) -> list[ScoringRequestOutput]:
        """Of each pair, or of one text with each of the others: what a cross-encoder says of the two, or the cosine of
        the angle between their embeddings.
        """
        first, second = _as_list(text_1), _as_list(text_2)
        if len(first) not in {1, len(second)}:
            raise InvalidRequest(
                f"text_1 has {len(first)} texts and text_2 {len(second)}; give one and several, or equally many",
                field="text_1",
            )
        self._labels.check_activation(use_activation)
        self._labels.check_instruction(instruction)
        if self._labels:
            self._labels.check_pairs()
            pairs = self._join(first, second, self._truncation(truncate_prompt_tokens), instruction)
            return self._score_pairs(pairs, use_activation is not False)
        outputs = self.embed([*first, *second], truncate_prompt_tokens=truncate_prompt_tokens)
        left, right = outputs[: len(first)], outputs[len(first) :]
        left = left * len(right) if len(left) == 1 else left
        return [self._scored(one, other) for one, other in zip(left, right, strict=True)]

    def run(
        self,
        tokens: Sequence[list[int]],
        readout: Readout,
        *,
        types: Sequence[list[int]] | None = None,
        pooling: Pooling | None = None,
        normalize: bool = True,
        media: Sequence[tuple[MediaItem, ...]] = (),
    ) -> list[Rows]:
        """What is read off texts that are tokens already; `types` tells the texts of pairs apart."""
        self._labels.check(readout)
        if pooling is not None and (pooling not in POOLINGS or readout != "embed"):
            raise InvalidRequest(
                f"pooling is {pooling!r}, but it must be one of {', '.join(POOLINGS)}, to embed texts whole",
                field="pooling",
            )
        for ids in tokens:
            self._check(ids)
        usual = pooling or self._settings.pooling_of(self.model.spec)
        of_pairs = [()] * len(tokens) if types is None else [tuple(each) for each in types]
        params = [PoolingParams(readout, usual, normalize, each) for each in of_pairs]
        return self._pool(tokens, params, media) if any(media) else self._pool(tokens, params)

    def _score_pairs(self, pairs: list[PairTokens], use_activation: bool) -> list[ScoringRequestOutput]:
        found = self.run([pair.ids for pair in pairs], "classify", types=[pair.types for pair in pairs])
        return [
            ScoringRequestOutput(
                self._next_id(), ScoringOutput(self._labels.score(scores, use_activation=use_activation)), pair.ids
            )
            for [scores], pair in zip(found, pairs, strict=True)
        ]

    def _join(
        self, first: list[TextPrompt], second: list[TextPrompt], limit: int | None, instruction: str | None
    ) -> list[PairTokens]:
        tokenizer = self._texts()
        is_reranker = self._settings.has_reranker_prompt
        frame = reranker_frame(tokenizer, instruction) if is_reranker else tokenizer.pair_frame()
        left = self._encode_bare(first, frame.written_first)
        right = self._encode_bare(second, frame.written_second)
        left = left * len(right) if len(left) == 1 else left
        return [frame.join(one, other, limit) for one, other in zip(left, right, strict=True)]

    def _encode_bare(self, texts: list[TextPrompt], written: Callable[[str], str]) -> list[list[int]]:
        """Without the tokens that frame a text of its own."""
        given = [
            written(text.lower() if self._settings.lower_case else text) for text in texts if isinstance(text, str)
        ]
        if len(given) < len(texts):
            raise InvalidRequest("a classifier scores pairs of texts, and token ids were given; give texts")
        return self._texts().encode_batch(given, add_special_tokens=False)

    def _scored(self, one: EmbeddingRequestOutput, other: EmbeddingRequestOutput) -> ScoringRequestOutput:
        pad = None if self.tokenizer is None else self.tokenizer.special.pad
        between = [] if pad is None else [pad]
        products = zip(one.outputs.embedding, other.outputs.embedding, strict=True)
        return ScoringRequestOutput(
            f"{one.request_id}_{other.request_id}",
            ScoringOutput(sum(a * b for a, b in products)),
            [*one.prompt_token_ids, *between, *other.prompt_token_ids],
        )

    def _next_id(self) -> str:
        return str(next(self._numbers))

    def _texts(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InvalidRequest("the model was loaded without its tokenizer; give token ids", field="prompt")
        return self.tokenizer

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

    def _encode_all(
        self,
        prompts: Sequence[TextPrompt],
        truncate: int | None,
        prompt_name: str | None = None,
        *,
        is_embedded: bool = False,
    ) -> list[list[int]]:
        """Tokens of each prompt; what is to be embedded has the model's own prompt before it, where it is text."""
        limit = self._truncation(truncate)
        before = self._settings.prompt(prompt_name) if is_embedded else ""
        if prompt_name is not None and not all(isinstance(prompt, str) for prompt in prompts):
            raise InvalidRequest("prompt_name is given with token ids; it goes before texts", field="prompt_name")
        return [self._encode(prompt, limit, before) for prompt in prompts]

    def _encode(self, prompt: TextPrompt, limit: int | None, before: str) -> list[int]:
        if not isinstance(prompt, str):
            return list(prompt)[:limit]
        tokenizer, text = self._texts(), before + prompt
        text = text.lower() if self._settings.lower_case else text
        return tokenizer.encode(text) if limit is None else encode_truncated(tokenizer, text, limit)

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


def _as_list(texts: str | Sequence[TextPrompt]) -> list[TextPrompt]:
    return [texts] if isinstance(texts, str) else list(texts)
