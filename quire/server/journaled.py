"""Answers for a router: in frames that tell it what another server would need to go on, and from where one stopped.

`quire.protocol.journal` says what travels. Routes know nothing of it: a resumption is taken off the body before they
read it, and `Serving.respond` wraps what it sends.
"""

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.core.errors import InvalidRequest
from quire.core.outputs import Delta
from quire.protocol.ids import repeat_ids
from quire.protocol.journal import (
    JOURNAL_HEADER,
    JOURNAL_VERSION,
    RESUME_HEADER,
    AnswerIdentity,
    Note,
    Progress,
    Resumption,
    frame,
    read_resumption,
)
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.gate.credentials import only

_JOURNAL, _RESUME, _VERSION = JOURNAL_HEADER.encode(), RESUME_HEADER.encode(), JOURNAL_VERSION.encode()
_STATE = "journaled"
_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Journaled:
    """How one request is to be answered."""

    identity: AnswerIdentity
    resumed: list[Progress] | None = None
    """What its client already has; None: it begins here."""


class Journaling:
    """Stands between the gate and the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            headers = scope["headers"]
            if only(headers, _JOURNAL) == _VERSION:
                receive = await _prepared(scope, only(headers, _RESUME), receive)
        await self._app(scope, receive, send)


def journaled_of(scope: Scope) -> Journaled | None:
    """None where nobody asked for frames."""
    found: Journaled | None = scope.get("state", {}).get(_STATE)
    return found


def check_can_resume(call: Call) -> None:
    """Raise InvalidRequest for an answer that only its first server can give."""
    if not can_resume(call):
        raise InvalidRequest(
            "an answer by beam search, the best of several, or with logprobs and not streamed cannot go on elsewhere; "
            "ask for it anew.",
            field=RESUME_HEADER,
        )


def can_resume(call: Call) -> bool:
    """Whether what a client has of the answer is enough to make the rest of it."""
    params = call.params
    has_logprobs = params.logprobs is not None and not call.stream
    return (
        call.beams is None and params.num_sequences == params.n and params.prompt_logprobs is None and not has_logprobs
    )


class Frames:
    """Makes frames of what a stream sends."""

    def __init__(self, journaled: Journaled, call: Call) -> None:
        self.is_resumed = journaled.resumed is not None
        self._identity = journaled.identity if can_resume(call) else None
        self._prompt_tokens = sum(len(prompt) for prompt in call.prompts)

    def first(self, payload: bytes) -> bytes:
        return frame(Note(identity=self._identity, prompt_tokens=self._prompt_tokens), payload)

    def piece(self, deltas: Iterable[Delta], payload: bytes) -> bytes:
        news = [Progress(each.prompt, each.index, each.token_ids, each.finish_reason) for each in deltas]
        return frame(Note(news=news), payload)

    def last(self, payload: bytes, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> bytes:
        return frame(Note(status=status, headers=list(headers)), payload)


async def _prepared(scope: Scope, resume: bytes | None, receive: Receive) -> Receive:
    """Note in the request's state how it is answered; returns what its routes read the body from."""
    state, caller = scope["state"], scope["state"]["caller"]
    resumption: Resumption | None = None
    if resume is not None:
        record, rest = await _split(resume, receive)
        resumption = read_resumption(record)
        receive = _Rest(rest, receive)
        length = str(len(rest)).encode()
        scope["headers"] = [(name, length if name == b"content-length" else value) for name, value in scope["headers"]]
    if resumption is None:
        identity = AnswerIdentity(caller.request_id, int(time.time()), secrets.randbits(62))
        state[_STATE] = Journaled(identity)
    else:
        identity = resumption.identity
        state[_STATE] = Journaled(identity, resumption.sequences)
    assert isinstance(caller, Caller)
    state["caller"] = replace(caller, answer=identity)
    repeat_ids(identity.seed)
    return receive


async def _split(resume: bytes, receive: Receive) -> tuple[bytes, bytes]:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            break  # the client is gone, and its route will be told again
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    length = int(resume) if resume.isdigit() and len(resume) <= _MOST_DIGITS else -1
    if not 0 < length <= len(body):
        raise InvalidRequest(
            f"{RESUME_HEADER} is {resume[:32].decode('latin-1')!r}, but it must be a number of the body's bytes, which "
            f"are {len(body):,}.",
            field=RESUME_HEADER,
        )
    return bytes(body[:length]), bytes(body[length:])


class _Rest:
    """Stands in for `receive`: the rest of a body that was read, then what comes behind it."""

    def __init__(self, rest: bytes, receive: Receive) -> None:
        self._rest: bytes | None = rest
        self._receive = receive

    async def __call__(self) -> Message:
        if self._rest is None:
            return await self._receive()
        rest, self._rest = self._rest, None
        return {"type": "http.request", "body": rest, "more_body": False}
