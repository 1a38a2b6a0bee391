"""POST /invocations, for SageMaker: a body goes to the route that its fields belong to. And /ping."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import object_of
from quire.protocol.schemas.status import HEALTH
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.cohere import rerank
from quire.server.openai import chat, classify, completions, embeddings, score
from quire.server.openai.list_answer import Answer, respond
from quire.server.operation import Operation
from quire.server.status import health

if TYPE_CHECKING:
    from quire.server.serving import Serving

_Read = Callable[[object, "Serving", Caller], Awaitable[Call]]
_CALLS: dict[str, _Read] = {"messages": chat.read_call, "prompt": completions.read_call}
"""By the field that only they have."""
_ANSWERS: dict[str, Answer] = {
    "query": partial(rerank.answer, version="1"),
    "text_1": score.answer,
    "queries": score.answer,
    "input": embeddings.answer,
}


async def _invoke(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    values, caller = object_of(await read_json(request)), request.state.caller
    for field, read in _CALLS.items():
        if values.get(field) is not None:
            return await serving.respond(request, await read(values, serving, caller))
    for field, answer in _ANSWERS.items():
        if values.get(field) is not None:
            chosen = classify.answer if field == "input" and serving.labels.names else answer
            return await respond(request, values, chosen)
    fields = ", ".join((*_CALLS, *_ANSWERS))
    raise InvalidRequest(f"the body belongs to no route: it has none of {fields}; give one of them", field="body")


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/ping", "As /health, for SageMaker", health, answer=HEALTH, statuses=(200, 503)),
    Operation("POST", "/ping", "As /health, for SageMaker", health, answer=HEALTH, statuses=(200, 503)),
    Operation(
        "POST",
        "/invocations",
        "A body for any of chats, completions, embeddings, classes, scores and reranking, for SageMaker",
        _invoke,
        body={"type": "object", "anyOf": [{"required": [field]} for field in (*_CALLS, *_ANSWERS)]},
        answer={"type": "object"},
        answer_types=("application/json", "text/event-stream"),
    ),
)
