"""POST /v1/embeddings."""

from typing import TYPE_CHECKING

from quire.core.media import MediaItem
from quire.protocol.ignored import Ignored
from quire.protocol.openai.embedding_body import EMBEDDING_FIELDS, EmbeddingBody, read_embedding_body
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import EMBEDDINGS
from quire.protocol.writer import Body
from quire.server.caller import Caller
from quire.server.openai.head import answer_head, note_labels
from quire.server.openai.list_answer import handler, list_answer
from quire.server.openai.vectors import check_dimensions, encode_texts, packed, prompt_before
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATH = "/v1/embeddings"


async def answer(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Body:
    """The answer to an embedding body. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_embedding_body(body, ignored)
    model = serving.check_model(asked.model, caller)
    serving.labels.check("embed")
    check_dimensions(asked.dimensions, serving.embedding_size)
    note_labels(asked.labels, caller)
    prompts, media = await _prompts(asked, serving, caller)
    vectors = await serving.embed(
        prompts, caller, pooling=asked.pooling, normalize=asked.normalize, model=model, media=media
    )
    data = [
        {"object": "embedding", "index": index, "embedding": packed([vector]) if asked.base64 else vector}
        for index, vector in enumerate(vectors)
    ]
    return list_answer("embd", data, sum(map(len, prompts)), answer_head(serving, caller, model))


async def _prompts(
    asked: EmbeddingBody, serving: "Serving", caller: Caller
) -> tuple[list[list[int]], list[tuple[MediaItem, ...]]]:
    """Tokens of what is embedded, and the media among it."""
    if asked.image is not None:
        tokens, items = await serving.read_image(asked.image, caller.tenant)
        return [tokens], [items]
    prompts = await encode_texts(
        asked.inputs,
        serving,
        field="input",
        add_special_tokens=asked.add_special_tokens,
        truncate=asked.truncate_prompt_tokens,
        before=prompt_before(asked.inputs, serving, asked.prompt_name),
    )
    return prompts, []


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=PATH,
        summary="A vector for each text, or for an image.",
        handler=handler(answer),
        body=body_schema(EMBEDDING_FIELDS, required=()),
        answer=EMBEDDINGS,
    ),
)
