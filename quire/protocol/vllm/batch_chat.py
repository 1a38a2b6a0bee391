"""Bodies of vLLM's /v1/chat/completions/batch, several conversations under one set of parameters, and their answer."""

from collections.abc import Sequence

from quire.core.errors import InvalidRequest
from quire.core.outputs import RequestOutput
from quire.protocol.ignored import Ignored
from quire.protocol.openai.answers import ChatAnswer, schema_errors, usage
from quire.protocol.openai.body import CHAT_FIELDS, MOST_SEQUENCES, ChatBody, read_chat_body
from quire.protocol.openai.fields import object_of, refuse
from quire.protocol.openai.messages import MESSAGES
from quire.protocol.openai.schema import Schema
from quire.protocol.writer import Body, WholeWriter

_ALONE = ("stream", "stream_options", "use_beam_search", "best_of", "echo", "kv_transfer_params")
"""What a single conversation may ask for, and several may not."""
BATCH_CHAT_FIELDS: dict[str, Schema] = {
    **{name: schema for name, schema in CHAT_FIELDS.items() if name not in _ALONE},
    "messages": {"type": "array", "items": MESSAGES, "minItems": 1, "maxItems": MOST_SEQUENCES},
}


def read_batch_chat_body(values: object, ignored: Ignored | None = None) -> list[ChatBody]:
    """A body for each conversation. Raises an InvalidRequest that names the field for anything that cannot be done."""
    given = dict(object_of(values))
    conversations = given.get("messages")
    if not isinstance(conversations, list) or not 0 < len(conversations) <= MOST_SEQUENCES:
        raise refuse("messages", conversations, f"a list of 1 to {MOST_SEQUENCES} conversations")
    for place, each in enumerate(conversations):
        if not isinstance(each, list) or not each:
            raise refuse(f"messages[{place}]", each, "a conversation: a list of at least one message")
    for name in _ALONE:
        if given.get(name) not in (None, False):
            raise InvalidRequest(
                f"{name} is not supported for several conversations at once; leave it out, or send one conversation to "
                "/v1/chat/completions",
                field=name,
            )
    if given.get("n") not in (None, 1):
        raise refuse("n", given.get("n"), "1: each conversation has one answer")
    if given.get("tools") is not None and given.get("tool_choice") != "none":
        raise InvalidRequest(
            "tools are not supported for several conversations at once; leave them out, or send one conversation to "
            "/v1/chat/completions",
            field="tools",
        )
    return [read_chat_body({**given, "messages": each}, ignored) for each in conversations]


class BatchChatWriter(WholeWriter):
    """One choice a conversation, in their order."""

    def __init__(self, answers: Sequence[ChatAnswer]) -> None:
        self._answers = answers

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        bodies = [answer.whole([output]) for answer, output in zip(self._answers, outputs, strict=True)]
        about = ("prompt_token_ids", "prompt_logprobs")
        choices = [
            {**body["choices"][0], "index": index, **{name: body[name] for name in about}}
            for index, body in enumerate(bodies)
        ]
        thought = sum(body["usage"]["completion_tokens_details"]["reasoning_tokens"] for body in bodies)
        used = usage(outputs) | {"completion_tokens_details": {"reasoning_tokens": thought}}
        return {**{name: value for name, value in bodies[0].items() if name not in about}} | {
            "choices": choices,
            "usage": used,
            **schema_errors(outputs, 1),
        }
