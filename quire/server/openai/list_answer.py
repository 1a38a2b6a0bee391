"""What the answers about texts that are not continued have in common: one entry for each, in a list."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from quire.protocol.ignored import Ignored
from quire.protocol.openai.answers import AnswerHead
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.caller import Caller
from quire.server.ignored import ignored_header
from quire.server.openai.json_response import json_response
from quire.server.streams import until_gone

if TYPE_CHECKING:
    from quire.server.serving import Serving

Answer = Callable[[object, "Serving", Caller, Ignored], Coroutine[Any, Any, Body]]
"""From a body as it came to the answer; raises an InvalidRequest for anything that cannot be honoured."""


def list_answer(kind: str, data: list[dict[str, Any]], num_tokens: int, head: AnswerHead) -> Body:
    """`kind` begins the answer's id; `num_tokens` is what all texts had."""
    return {
        "id": f"{kind}-{head.identity}",
        "object": "list",
        "created": head.created,
        "model": head.model,
        "data": data,
        "usage": usage(num_tokens),
    }


def usage(num_tokens: int) -> dict[str, int]:
    """Nothing is generated, so all tokens are the prompts'."""
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


def handler(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """The route that answers whole bodies with `answer`."""

    async def handle(request: Request) -> Response:
        return await respond(request, await read_json(request), answer)

    return handle


async def respond(request: Request, values: object, answer: Answer) -> Response:
    """What `answer` makes of a body, for a client that is still there."""
    serving: Serving = request.app.state.serving
    ignored = serving.new_ignored()
    body = await until_gone(request.receive, answer(values, serving, request.state.caller, ignored))
    serving.note_ignored(ignored)
    return json_response(body, ignored_header(ignored))
