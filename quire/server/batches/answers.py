"""How a batch's requests are answered: as the routes answer them, without HTTP, and behind everyone who is waiting."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from quire.core.errors import InvalidRequest
from quire.server.batches.record import Sender
from quire.server.batches.run import Answer
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.gate.account import Account
from quire.server.openai import chat, completions, embeddings
from quire.server.responses import routes as responses
from quire.server.serving import Serving

BATCH_PRIORITY = 1_000_000
"""In place of its key's; smaller goes first."""

ReadCall = Callable[[object, Serving, Caller], Awaitable[Call]]


def batch_answers(serving: Serving, accounts: Callable[[str], Account]) -> dict[str, Answer]:
    """Endpoint → its way to answer; `accounts` has the account of a tenant, known or not."""
    return {
        "/v1/chat/completions": _generating(serving, accounts, chat.read_call),
        "/v1/completions": _generating(serving, accounts, completions.read_call),
        "/v1/embeddings": _embedding(serving, accounts),
        "/v1/responses": _generating(serving, accounts, responses.read_call),
    }


def _generating(serving: Serving, accounts: Callable[[str], Account], read_call: ReadCall) -> Answer:
    async def answer(body: dict[str, Any], sender: Sender, request_id: str) -> dict[str, Any]:
        caller = _caller(sender, accounts, request_id)
        call = await read_call(body, serving, caller)
        if call.stream:
            raise InvalidRequest("stream is true; it must be false or left out in a batch", field="stream")
        return call.writer.whole(await serving.complete(call, replace(caller, priority=BATCH_PRIORITY)))

    return answer


def _embedding(serving: Serving, accounts: Callable[[str], Account]) -> Answer:
    async def answer(body: dict[str, Any], sender: Sender, request_id: str) -> dict[str, Any]:
        ignored = serving.new_ignored()
        answered = await embeddings.answer(body, serving, _caller(sender, accounts, request_id), ignored)
        serving.note_ignored(ignored)
        return answered

    return answer


def _caller(sender: Sender, accounts: Callable[[str], Account], request_id: str) -> Caller:
    return Caller(
        request_id,
        accounts(sender.tenant),
        tenant=sender.tenant,
        priority=sender.priority,
        cache_salt=sender.cache_salt,
        models=None if sender.models is None else frozenset(sender.models),
    )
