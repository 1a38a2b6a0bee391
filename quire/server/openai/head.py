"""What OpenAI's answers begin with, and the note of whom they are for."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from quire.config.server import ServerConfig
from quire.protocol.openai.answers import AnswerHead, fingerprint
from quire.protocol.openai.body import ChatBody, CompletionBody
from quire.server.caller import Caller

if TYPE_CHECKING:
    from quire.server.serving import Serving

_log = logging.getLogger(__name__)
_B = TypeVar("_B", ChatBody, CompletionBody)


def answer_head(serving: "Serving", caller: Caller, model: str) -> AnswerHead:
    """`model` is what the client calls it."""
    identity, created = caller.request_id, serving.now()
    if caller.answer is not None:
        identity, created = caller.answer.id, caller.answer.created
    return AnswerHead(identity, created, model, fingerprint(serving.names[0]))


def as_the_server_answers(body: _B, server: ServerConfig) -> _B:
    """The body, with what the server tells of every answer on top of what it asks for itself."""
    if not (server.return_tokens_as_token_ids or server.enable_force_include_usage):
        return body
    forced = body.stream and server.enable_force_include_usage
    options = replace(
        body.options,
        tokens_as_ids=body.options.tokens_as_ids or server.return_tokens_as_token_ids,
        include_usage=body.options.include_usage or forced,
        continuous_usage=body.options.continuous_usage or forced,
    )
    return replace(body, options=options)


def note_labels(labels: Mapping[str, str], caller: Caller) -> None:
    """The client's own identifiers (user, safety_identifier, metadata) are in the log beside the request's id."""
    if labels:
        _log.info("request %s is for %r", caller.request_id, dict(labels))
