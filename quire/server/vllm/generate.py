"""POST /inference/v1/generate: tokens in, tokens out, for routers that render and read text themselves."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.protocol.openai.logprobs import LogprobWriter
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.vllm import GENERATED
from quire.protocol.vllm.generate_body import GENERATE_FIELDS, read_generate_body
from quire.protocol.vllm.generate_writer import GenerateWriter
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.openai.head import answer_head
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATH = "/inference/v1/generate"


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """A body with tokens, ready to run. Raises an InvalidRequest for anything that cannot be honoured."""
    ignored = serving.new_ignored()
    asked = read_generate_body(body, ignored)
    model = serving.check_model(asked.model, caller)
    params = asked.params
    writer = GenerateWriter(
        answer_head(serving, caller, model),
        asked.options,
        LogprobWriter(serving.tokenizer, as_ids=True),
        None if params.logprob_token_ids else params.logprobs or 0,
        len(asked.tokens),
    )
    field = "sampling_params"
    return Call(PATH, [asked.tokens], [None], params, field, asked.stream, writer, model=model, ignored=ignored)


async def _generate(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    call = await read_call(await read_json(request), serving, request.state.caller)
    return await serving.respond(request, call)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        PATH,
        "What follows tokens, as tokens; vLLM's",
        _generate,
        body=body_schema(GENERATE_FIELDS, required=("token_ids", "sampling_params")),
        answer=GENERATED,
        answer_types=("application/json", "text/event-stream"),
    ),
)
