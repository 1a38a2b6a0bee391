"""What OpenAI's answers begin with, and the note of whom they are for."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from quire.protocol.openai.answers import AnswerHead, fingerprint
from quire.server.caller import Caller

if TYPE_CHECKING:
    from quire.server.serving import Serving

_log = logging.getLogger(__name__)


def answer_head(serving: "Serving", caller: Caller, model: str) -> AnswerHead:
    """`model` is what the client calls it."""
    identity, created = caller.request_id, serving.now()
    if caller.answer is not None:
        identity, created = caller.answer.id, caller.answer.created
    return AnswerHead(identity, created, model, fingerprint(serving.names[0]))


def note_labels(labels: Mapping[str, str], caller: Caller) -> None:
    """The client's own identifiers (user, safety_identifier, metadata) are in the log beside the request's id."""
    if labels:
        _log.info("request %s is for %r", caller.request_id, dict(labels))
