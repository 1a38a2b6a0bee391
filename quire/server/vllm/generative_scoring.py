"""POST /generative_scoring: how likely a label is to come after a query and each of several items."""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.vllm import GENERATIVE_SCORES
from quire.protocol.vllm.scoring_body import SCORING_FIELDS, ScoringBody, ScoringWriter, read_scoring_body
from quire.server.body import read_json
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.openai.head import answer_head, note_labels
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATH = "/generative_scoring"


async def read_call(body: object, serving: "Serving", caller: Caller) -> Call:
    """A scoring body, ready to run. Raises an InvalidRequest for anything that cannot be honoured."""
    ignored = serving.new_ignored()
    asked = read_scoring_body(body, ignored)
    model = serving.check_model(asked.model, caller)
    note_labels(asked.labels, caller)
    size = serving.tokenizer.vocab_size
    if max(asked.label_token_ids) >= size:
        raise InvalidRequest(
            f"label_token_ids names {max(asked.label_token_ids)}, and the vocabulary goes from 0 to {size - 1}",
            field="label_token_ids",
        )
    params = SamplingParams(
        max_tokens=1, temperature=0.0, logprobs=0, logprob_token_ids=asked.label_token_ids, priority=asked.priority
    )
    prompts = await _prompts(asked, serving)
    writer = ScoringWriter(asked, answer_head(serving, caller, model))
    return Call(PATH, prompts, [None] * len(prompts), params, "items", False, writer, model=model, ignored=ignored)


async def _score(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    return await serving.respond(request, await read_call(await read_json(request), serving, request.state.caller))


async def _prompts(asked: ScoringBody, serving: "Serving") -> list[list[int]]:
    [query] = await serving.encode_all([asked.query], add_special_tokens=asked.add_special_tokens)
    items = await serving.encode_all(asked.items, add_special_tokens=False)
    room = serving.max_model_len - 1
    return [([*item, *query] if asked.item_first else [*query, *item])[:room] for item in items]


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        PATH,
        "How likely a label is to come after a query and each item; vLLM's",
        _score,
        body=body_schema(SCORING_FIELDS, required=("query", "items", "label_token_ids")),
        answer=GENERATIVE_SCORES,
    ),
)
