"""GET /load and /tokenizer_info, in vLLM's shapes."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.protocol.schemas.vllm import LOAD, TOKENIZER_INFO
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def _load(request: Request) -> Response:
    """Requests that run or wait now, in all fronts."""
    serving: Serving = request.app.state.serving
    return JSONResponse({"server_load": (await serving.overview()).num_live})


async def _tokenizer_info(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    serving.check_model(None, request.state.caller)
    tokenizer = serving.tokenizer
    named = {name: tokenizer.named_tokens().get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    added = {
        str(token): {"content": tokenizer.id_to_token(token), "special": True}
        for token in sorted(tokenizer.pieces.special_ids)
    }
    return JSONResponse(
        {
            # what transformers calls a tokenizer of the `tokenizers` library, which they all are here
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": serving.max_model_len,
            "vocab_size": tokenizer.vocab_size,
            **named,
            "added_tokens_decoder": added,
            "chat_template": await serving.template_text(),
        }
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/load", "How many requests run or wait now; vLLM's", _load, answer=LOAD),
    Operation(
        "GET",
        "/tokenizer_info",
        "The model's special tokens and chat template; vLLM's",
        _tokenizer_info,
        answer=TOKENIZER_INFO,
    ),
)
