"""Finished requests as OpenAI's response bodies."""

from collections.abc import Sequence
from typing import Any

from quire.core.outputs import CompletionOutput, PositionLogprobs, RequestOutput
from quire.engine.text.tokenizer import Tokenizer

Body = dict[str, Any]


def chat_answer(
    identity: str, created: int, model: str, output: RequestOutput, tokenizer: Tokenizer, top: int = 0
) -> Body:
    """The body of a chat completion; `top` likeliest tokens are listed where logprobs were asked for."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": sequence.text, "refusal": None},
            "logprobs": _chat_logprobs(sequence, tokenizer, top),
            "finish_reason": sequence.finish_reason,
            "stop_reason": sequence.stop_reason,
        }
        for index, sequence in enumerate(output.outputs)
    ]
    return _answer(f"chatcmpl-{identity}", "chat.completion", created, model, choices, [output])


def completion_answer(identity: str, created: int, model: str, outputs: Sequence[RequestOutput]) -> Body:
    """The body of a text completion; choices of the first prompt come first."""
    sequences = [sequence for output in outputs for sequence in output.outputs]
    choices = [
        {
            "index": index,
            "text": sequence.text,
            "logprobs": _text_logprobs(sequence),
            "finish_reason": sequence.finish_reason,
            "stop_reason": sequence.stop_reason,
        }
        for index, sequence in enumerate(sequences)
    ]
    return _answer(f"cmpl-{identity}", "text_completion", created, model, choices, outputs)


def error_answer(message: str, kind: str, field: str | None) -> Body:
    """The body of a refusal."""
    return {"error": {"message": message, "type": kind, "param": field, "code": None}}


def _answer(
    identity: str, kind: str, created: int, model: str, choices: list[Body], outputs: Sequence[RequestOutput]
) -> Body:
    read = sum(len(output.prompt_token_ids) for output in outputs)
    written = sum(len(sequence.token_ids) for output in outputs for sequence in output.outputs)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {"id": identity, "object": kind, "created": created, "model": model, "choices": choices, "usage": usage}


def _chat_logprobs(sequence: CompletionOutput, tokenizer: Tokenizer, top: int) -> Body | None:
    if sequence.logprobs is None:
        return None

    def entry(token: int, found: PositionLogprobs) -> Body:
        bytes_ = list(tokenizer.token_bytes(token))
        return {"token": found[token].decoded_token or "", "logprob": found[token].logprob, "bytes": bytes_}

    pairs = zip(sequence.token_ids, sequence.logprobs, strict=True)
    return {
        "content": [
            entry(token, found) | {"top_logprobs": [entry(other, found) for other in _likeliest(found, top)]}
            for token, found in pairs
        ]
    }


def _text_logprobs(sequence: CompletionOutput) -> Body | None:
    if sequence.logprobs is None:
        return None
    tokens, values, top, offsets, length = [], [], [], [], 0
    for token, found in zip(sequence.token_ids, sequence.logprobs, strict=True):
        text = found[token].decoded_token or ""
        tokens.append(text)
        values.append(found[token].logprob)
        top.append({found[other].decoded_token or "": found[other].logprob for other in found})
        offsets.append(length)
        length += len(text)
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets}


def _likeliest(found: PositionLogprobs, count: int) -> list[int]:
    """The chosen token is among them only when it is likely enough."""
    ranked = sorted(found, key=lambda token: found[token].rank or 0)
    return [token for token in ranked if (found[token].rank or 0) <= count][:count]
