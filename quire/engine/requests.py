"""From a prompt and parameters to the Request that an engine takes: words as tokens, every token id checked."""

import time
from collections.abc import Sequence

import msgspec

from quire.config.facts import ModelFacts
from quire.core.adapter import AdapterRef
from quire.core.encoder_input import EncoderInput
from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem
from quire.core.pooling_params import PoolingParams
from quire.core.prompt import MediaKey, Prompt, media_keys
from quire.core.request import DEFAULT_TENANT, Request
from quire.core.sampling_params import SamplingParams
from quire.engine.grammar.checker import GrammarChecker
from quire.engine.grammar.vocabulary import grammar_vocabulary
from quire.sampling.logits_processor import check_processor_args, load_processors
from quire.sampling.token_ids import check_token_ids
from quire.text.tokenizer import Tokenizer

_FLOAT = 4
"""Bytes."""


class RequestMaker:
    """Knows the model's vocabulary, and nothing of engines."""

    def __init__(self, tokenizer: Tokenizer | None, model: ModelFacts, logits_processors: Sequence[str] = ()) -> None:
        """`logits_processors` are the plugins that requests may name."""
        self._tokenizer = tokenizer
        self._processors = load_processors(logits_processors)
        self._model = model
        self.grammars = (
            None if tokenizer is None else GrammarChecker(lambda: grammar_vocabulary(tokenizer, model.spec.vocab_size))
        )
        """Checks structured output; None without a tokenizer."""

    def make(
        self,
        request_id: str,
        tokens: list[int],
        params: SamplingParams,
        *,
        pooling: PoolingParams | None = None,
        tenant: str = DEFAULT_TENANT,
        adapter: AdapterRef | None = None,
        media: tuple[MediaItem, ...] = (),
        source: EncoderInput | None = None,
    ) -> Request:
        """Raises InvalidRequest for what the model cannot read or quire cannot do.

        Waits for the check of a grammar that is not known; a caller that must not wait checks it beforehand.
        """
        self._check_source(source, params)
        if pooling is not None and not media:
            tokens = self._filled(tokens)
        request = Request(
            id=request_id,
            prompt=Prompt(tuple(tokens), _keys(media, source), adapter),
            params=params,
            pooling=pooling,
            arrival=time.monotonic(),
            tenant=tenant,
            eos_token_ids=() if self._tokenizer is None else self._tokenizer.eos_token_ids,
            bad_words=tuple(self._bad_words(params)),
            kv_variant=self._model.spec.kv_variant(len(tokens)),
            media=media,
            source=source,
        )
        return self._checked(request)

    def _filled(self, tokens: list[int]) -> list[int]:
        """A text as a model reads it that knows texts of one length alone."""
        joint, longest = self._model.spec.joint, self._model.spec.max_position
        if joint is None or joint.filled_with is None:
            return tokens
        return [*tokens, *[joint.filled_with] * (longest - len(tokens))]

    def _check_source(self, source: EncoderInput | None, params: SamplingParams) -> None:
        """What is for an encoder, and the encoder that it is for, come together."""
        encoder, name = self._model.spec.encoder, self._model.name
        if encoder is None and source is not None:
            raise InvalidRequest(f"{name} reads no sound; ask a model of the Whisper family", field="file")
        if encoder is None:
            if params.speech is not None:
                raise InvalidRequest(f"speech is for models that write down sound; {name} reads none", field="speech")
            return
        if source is None:
            raise InvalidRequest(
                f"{name} writes down what is said, and answers no texts; use /v1/audio/transcriptions", field="model"
            )
        wanted = (encoder.num_frames, encoder.num_mel_bins)
        if source.shape != wanted or len(source.values) != wanted[0] * wanted[1] * _FLOAT:
            raise InvalidRequest(
                f"the spectrogram is {source.shape[0]} frames of {source.shape[1]} bins in {len(source.values)} bytes; "
                f"{name} takes {wanted[0]} of {wanted[1]} in float32",
                field="file",
            )

    def close(self) -> None:
        """End the process that checks grammars, where there is one."""
        if self.grammars is not None:
            self.grammars.close()

    def _bad_words(self, params: SamplingParams) -> list[tuple[int, ...]]:
        """A word is bad at the start of a text and after a space."""
        if not params.bad_words:
            return []
        if self._tokenizer is None:
            raise InvalidRequest("bad_words need the tokenizer, which was not loaded", field="bad_words")
        spellings = [spelling for word in params.bad_words for spelling in (word, " " + word.lstrip())]
        encoded = [self._tokenizer.encode(spelling, add_special_tokens=False) for spelling in spellings]
        return list(dict.fromkeys(tuple(tokens) for tokens in encoded if tokens))

    def _checked(self, request: Request) -> Request:
        """The request, with what no grammar can say left out of a schema that is not strict."""
        largest, last = max(request.prompt.tokens), self._model.spec.vocab_size - 1
        if largest > last:
            raise InvalidRequest(
                f"token id {largest} in the prompt is out of vocabulary, which ends at {last}",
                field="prompt",
            )
        check_processor_args(request.params.logits_processor_args or {}, self._processors)
        check_token_ids(request.params, self._model.spec.vocab_size, request.bad_words)
        if request.params.structured is not None:
            if self.grammars is None:
                raise InvalidRequest("structured output needs the tokenizer, which was not loaded", field="structured")
            found = self.grammars.check(request.params.structured)
            if found.structured != request.params.structured:
                params = msgspec.structs.replace(request.params, structured=found.structured)
                return msgspec.structs.replace(request, params=params)
        return request


def _keys(media: tuple[MediaItem, ...], source: EncoderInput | None) -> tuple[MediaKey, ...]:
    """What of a prompt its tokens do not tell: which images they stand for, or what all of them look at."""
    return media_keys(media) if source is None else (MediaKey(0, source.digest),)
