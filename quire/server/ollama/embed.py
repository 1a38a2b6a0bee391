"""POST /api/embed, and /api/embeddings, which came before it."""

import time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.protocol.ollama import schemas
from quire.protocol.ollama.body import SHARED, EmbedBody, read_embed_body
from quire.protocol.openai.fields import Fields, object_of
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.caller import Caller
from quire.server.ollama.named import checked_name
from quire.server.openai.json_response import json_response
from quire.server.openai.vectors import check_dimensions, encode_texts
from quire.server.operation import Operation
from quire.server.streams import until_gone

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def answer(asked: EmbedBody, serving: "Serving", caller: Caller) -> Body:
    """The answer to an embedding body. Raises an InvalidRequest for anything that cannot be honoured."""
    began = time.monotonic()
    model = checked_name(asked.model, serving, caller)
    serving.labels.check("embed")
    check_dimensions(asked.dimensions, serving.embedding_size)
    prompts = await encode_texts(
        asked.inputs,
        serving,
        field="input",
        add_special_tokens=True,
        truncate=-1 if asked.truncate else None,
        before=serving.prompt(None),
    )
    vectors = await serving.embed(prompts, caller) if prompts else []
    return {
        "model": model,
        "embeddings": vectors,
        "total_duration": round((time.monotonic() - began) * 1e9),
        "load_duration": 0,
        "prompt_eval_count": sum(map(len, prompts)),
    }


async def _embed(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    asked = read_embed_body(await read_json(request, any_type=True))
    return json_response(await until_gone(request.receive, answer(asked, serving, request.state.caller)))


async def _embed_one(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    given = Fields(object_of(await read_json(request, any_type=True)), known=(*SHARED, "prompt"))
    others = given.present(*SHARED)
    asked = read_embed_body({**others, "input": given.text("prompt") or ""})
    found = await until_gone(request.receive, answer(asked, serving, request.state.caller))
    return json_response({"embedding": found["embeddings"][0] if found["embeddings"] else []})


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/api/embed",
        "A vector for each text, as Ollama's API",
        _embed,
        body=schemas.EMBED_BODY,
        answer=schemas.EMBED_ANSWER,
    ),
    Operation(
        "POST",
        "/api/embeddings",
        "A vector for one text, as Ollama's API had it first",
        _embed_one,
        body=schemas.EMBEDDINGS_BODY,
        answer=schemas.EMBEDDINGS_ANSWER,
    ),
)
