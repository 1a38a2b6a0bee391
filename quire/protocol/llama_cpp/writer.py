"""Answers in the shape of llama.cpp's /completion and /infill."""

from collections.abc import Sequence
from typing import Any

from quire.core.outputs import CompletionOutput, Delta, PositionLogprobs, RequestMetrics, RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.protocol.writer import Body, Event, Writer
from quire.text.tokenizer import Tokenizer

_LOWEST = -9999.0
"""What is sent for a probability of zero: JSON has no infinity."""


class CompletionWriter(Writer):
    """One answer, whole or in pieces."""

    def __init__(
        self,
        model: str,
        params: SamplingParams,
        tokenizer: Tokenizer,
        *,
        prompt: str | None,
        num_prompt: int,
        context: int,
        wants_tokens: bool,
    ) -> None:
        """`prompt` is the text that answers repeat, where there is one; `context` the model's longest."""
        self._model = model
        self._params = params
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._num_prompt = num_prompt
        self._context = context
        self._wants_tokens = wants_tokens
        self._written = 0

    def opening(self) -> list[Event]:
        return []

    def piece(self, delta: Delta) -> list[Event]:
        self._written += len(delta.token_ids)
        if not delta.text and not delta.logprobs and not self._wants_tokens:
            return []
        body: Body = {
            "index": 0,
            "content": delta.text,
            "tokens": delta.token_ids,
            "stop": False,
            "id_slot": 0,
            "tokens_predicted": self._written,
            "tokens_evaluated": self._num_prompt,
        }
        return [Event(body | self._probabilities(delta))]

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        (output,) = outputs
        return [Event(self._last(output, "", []))]

    def failure(self, error: Body) -> list[Event]:
        return [Event({"error": error})]

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        (output,) = outputs
        (sequence,) = output.outputs
        tokens = sequence.token_ids if self._wants_tokens else []
        return self._last(output, sequence.text, tokens) | self._probabilities(sequence)

    def _last(self, output: RequestOutput, text: str, tokens: list[int]) -> Body:
        (sequence,) = output.outputs
        word = sequence.stop_reason if isinstance(sequence.stop_reason, str) else ""
        cached, read = output.metrics.cached_tokens, len(output.prompt_token_ids)
        return {
            "index": 0,
            "content": text,
            "tokens": tokens,
            "id_slot": 0,
            "stop": True,
            "model": self._model,
            "tokens_predicted": len(sequence.token_ids),
            "tokens_evaluated": read,
            "generation_settings": settings(self._params, self._context),
            "prompt": self._prompt or "",
            "has_new_line": "\n" in sequence.text,
            "truncated": False,
            "stop_type": _stop_type(sequence, word),
            "stopping_word": word,
            "tokens_cached": read + len(sequence.token_ids),
            "timings": timings(output.metrics, read - cached, cached, len(sequence.token_ids)),
        }

    def _probabilities(self, said: CompletionOutput | Delta) -> Body:
        if not said.logprobs:
            return {}
        return {
            "completion_probabilities": [
                self._entry(token, here) | {"top_logprobs": self._top(here)}
                for token, here in zip(said.token_ids, said.logprobs, strict=True)
            ]
        }

    def _top(self, here: PositionLogprobs) -> list[Body]:
        ranked = sorted(here, key=lambda token: (-here[token].logprob, token))
        return [self._entry(token, here) for token in ranked[: self._params.logprobs or 0]]

    def _entry(self, token: int, here: PositionLogprobs) -> Body:
        data = self._tokenizer.token_bytes(token)
        value = here[token].logprob
        return {
            "id": token,
            "token": data.decode(errors="replace"),
            "bytes": list(data),
            "logprob": value if value > _LOWEST else _LOWEST,
        }


def settings(params: SamplingParams, context: int) -> dict[str, Any]:
    """Sampling parameters under llama.cpp's names."""
    return {
        "n_ctx": context,
        "n_predict": -1 if params.max_tokens is None else params.max_tokens,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "repeat_penalty": params.repetition_penalty,
        "repeat_last_n": -1,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "seed": -1 if params.seed is None else params.seed,
        "stop": list(params.stop),
        "ignore_eos": params.ignore_eos,
        "n_probs": params.logprobs or 0,
    }


def timings(metrics: RequestMetrics, computed: int, cached: int, written: int) -> dict[str, float]:
    """How long prompt and answer took, in milliseconds."""
    scheduled = metrics.first_scheduled_time or metrics.arrival_time
    first = metrics.first_token_time or scheduled
    end = metrics.finished_time or first
    return {
        "cache_n": cached,
        **_pace("prompt", computed, first - scheduled),
        **_pace("predicted", written, end - first),
    }


def _pace(name: str, tokens: int, seconds: float) -> dict[str, float]:
    seconds = max(seconds, 1e-6)
    return {
        f"{name}_n": tokens,
        f"{name}_ms": seconds * 1000,
        f"{name}_per_token_ms": seconds * 1000 / max(tokens, 1),
        f"{name}_per_second": tokens / seconds,
    }


def _stop_type(sequence: CompletionOutput, word: str) -> str:
    if word:
        return "word"
    return {"stop": "eos", "length": "limit"}.get(sequence.finish_reason or "", "none")
