"""POST /v2/embed, as Cohere's clients send it: vectors of texts."""

import asyncio
from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest
from quire.protocol.cohere.embed_body import (
    COHERE_EMBED_FIELDS,
    FORMS,
    INPUT_TYPES,
    check_forms,
    read_cohere_embed_body,
)
from quire.protocol.ignored import Ignored
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import COHERE_EMBEDDINGS
from quire.protocol.writer import Body
from quire.server.caller import Caller
from quire.server.openai.head import answer_head, note_labels
from quire.server.openai.list_answer import handler
from quire.server.openai.vectors import check_dimensions, encode_texts
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATH = "/v2/embed"


async def answer(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Body:
    """The answer to a body. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_cohere_embed_body(body, ignored)
    model = serving.check_model(asked.model, caller)
    serving.labels.check("embed")
    check_dimensions(asked.dimensions, serving.embedding_size, field="output_dimension")
    check_forms(asked.forms, serving.embedding_size)
    note_labels(asked.labels, caller)
    prompts = await encode_texts(
        asked.texts,
        serving,
        field="texts",
        add_special_tokens=True,
        truncate=None if asked.truncate is None else min(asked.truncate, serving.max_model_len),
        before=_before(asked.input_type, serving, ignored),
    )
    vectors = await serving.embed(prompts, caller, pooling=None, normalize=True, model=model, media=[])
    # of millions of numbers, beside the loop that other answers wait for
    embeddings = {form: await asyncio.to_thread(FORMS[form], vectors) for form in asked.forms}
    return {
        "id": f"embd-{answer_head(serving, caller, model).identity}",
        "embeddings": embeddings,
        "texts": asked.texts,
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": sum(map(len, prompts)), "image_tokens": 0},
        },
        "response_type": "embeddings_by_type",
    }


def _before(input_type: str | None, serving: "Serving", ignored: Ignored) -> str:
    """What goes before the texts: the prompt that the model has for what they are for, or its default."""
    if input_type is None:
        return serving.prompt(None)
    names = (input_type, *INPUT_TYPES.get(input_type, ()))
    if not serving.has_prompt(*names):
        allowed = f"one of {', '.join(INPUT_TYPES)}, or the name of one of the model's prompts"
        refused = InvalidRequest(f"Unsupported input_type {input_type!r}; it must be {allowed}", field="input_type")
        if input_type not in INPUT_TYPES:
            raise refused
        ignored.note("input_type", lambda: refused)  # Cohere's clients always say it, and many models have no prompts
    return serving.prompt_for(*names)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=PATH,
        summary="A vector for each text, in Cohere's shape.",
        handler=handler(answer),
        body=body_schema(COHERE_EMBED_FIELDS, required=("texts",)),
        answer=COHERE_EMBEDDINGS,
    ),
)
