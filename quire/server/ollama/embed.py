"""POST /api/embed, and /api/embeddings, which came before it."""

import time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.protocol.ignored import Ignored
from quire.protocol.ollama import schemas
from quire.protocol.ollama.body import SHARED, EmbedBody, read_embed_body
from quire.protocol.openai.fields import Fields, object_of
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.caller import Caller
from quire.server.ollama.named import checked_name
from quire.server.openai.list_answer import respond
from quire.server.openai.vectors import check_dimensions, encode_texts
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def _answer(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Body:
    return await _embedded(read_embed_body(body, ignored), serving, caller)


async def _answer_one(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Body:
    given = Fields(object_of(body), known=(*SHARED, "prompt"), ignored=ignored)
    text = given.text("prompt") or ""
    asked = read_embed_body({**given.present(*SHARED), "input": text}, ignored)
    found = await _embedded(asked, serving, caller)
    return {"embedding": found["embeddings"][0] if found["embeddings"] else []}


async def _embedded(asked: EmbedBody, serving: "Serving", caller: Caller) -> Body:
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
    return await respond(request, await read_json(request, any_type=True), _answer)


async def _embed_one(request: Request) -> Response:
    return await respond(request, await read_json(request, any_type=True), _answer_one)


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
