"""POST /tokenize and /detokenize, in vLLM's shapes and in llama.cpp's."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.core.errors import InvalidRequest
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.openai.tokenize_body import (
    DETOKENIZE_FIELDS,
    TOKENIZE_CHAT_FIELDS,
    TOKENIZE_CONTENT_FIELDS,
    TOKENIZE_TEXT_FIELDS,
    ContentBody,
    read_detokenize_body,
    read_tokenize_body,
)
from quire.protocol.schemas.answers import DETOKENIZED, TOKENIZED
from quire.protocol.writer import Body
from quire.server.body import read_json
from quire.server.ignored import ignored_header
from quire.server.openai.chat import encode_chat
from quire.server.openai.json_response import json_response
from quire.server.operation import Operation
from quire.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def tokenize(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    ignored = serving.new_ignored()
    asked = read_tokenize_body(await read_json(request), ignored)
    if isinstance(asked, ContentBody):
        serving.check_model(None, request.state.caller)
        tokens = await serving.encode(asked.content, add_special_tokens=asked.add_special_tokens)
        serving.note_ignored(ignored)
        found = _pieces(tokens, serving.tokenizer) if asked.with_pieces else tokens
        return json_response({"tokens": found}, ignored_header(ignored))
    serving.check_model(asked.model, request.state.caller)
    if isinstance(asked.prompt, str):
        tokens = await serving.encode(asked.prompt, add_special_tokens=asked.add_special_tokens)
    else:
        tokens = (await encode_chat(asked.prompt, serving, request.state.caller)).tokens
    spelled = [serving.tokenizer.id_to_token(token) for token in tokens] if asked.spelled else None
    body: Body = {"count": len(tokens), "max_model_len": serving.max_model_len, "tokens": tokens}
    serving.note_ignored(ignored)
    return json_response(body | {"token_strs": spelled}, ignored_header(ignored))


async def detokenize(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    ignored = serving.new_ignored()
    asked = read_detokenize_body(await read_json(request), ignored)
    serving.check_model(asked.model, request.state.caller)
    highest, size = max(asked.tokens, default=0), serving.tokenizer.vocab_size
    if highest >= size:
        raise InvalidRequest(
            f"token id {highest} is not in the vocabulary, which goes from 0 to {size - 1}", field="tokens"
        )
    serving.note_ignored(ignored)
    text = serving.tokenizer.decode(asked.tokens, skip_special_tokens=False)
    # llama.cpp's clients send no model, and call the text by another name
    answer = {"prompt": text} | ({"content": text} if asked.model is None else {})
    return json_response(answer, ignored_header(ignored))


def _pieces(tokens: list[int], tokenizer: Tokenizer) -> list[Body]:
    """Each token with its text; one that holds a part of a character, with its bytes."""
    found: list[Body] = []
    for token in tokens:
        data = tokenizer.token_bytes(token)
        try:
            found.append({"id": token, "piece": data.decode()})
        except UnicodeDecodeError:
            found.append({"id": token, "piece": list(data)})
    return found


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path="/tokenize",
        summary="The tokens of a text or a conversation.",
        handler=tokenize,
        body={
            "anyOf": [
                body_schema(TOKENIZE_TEXT_FIELDS, required=("prompt",)),
                body_schema(TOKENIZE_CHAT_FIELDS, required=("messages",)),
                body_schema(TOKENIZE_CONTENT_FIELDS, required=("content",)),
            ]
        },
        answer=TOKENIZED,
    ),
    Operation(
        method="POST",
        path="/detokenize",
        summary="The text of tokens, special ones included.",
        handler=detokenize,
        body=body_schema(DETOKENIZE_FIELDS, required=("tokens",)),
        answer=DETOKENIZED,
    ),
)
