"""POST /pooling, also known as /v1/pooling: what a task reads off each text, as vLLM names tasks."""

from typing import TYPE_CHECKING

from quire.core.errors import InvalidRequest
from quire.core.pooling import PoolingTask, Rows
from quire.protocol.ignored import Ignored
from quire.protocol.openai.pooling_body import POOLING_FIELDS, PoolingBody, read_pooling_body
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import POOLED
from quire.protocol.writer import Body
from quire.server.caller import Caller
from quire.server.openai.head import answer_head, note_labels
from quire.server.openai.list_answer import handler, list_answer
from quire.server.openai.vectors import check_dimensions, encode_texts, packed, prompt_before
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATHS = ("/pooling", "/v1/pooling")
MOST_NUMBERS = 1 << 22
"""Of one answer; writing them as JSON takes about half a second."""


async def answer(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Body:
    """The answer to a pooling body. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_pooling_body(body, ignored)
    model = serving.check_model(asked.model, caller, takes_adapters=False)
    task = _task(asked, serving)
    note_labels(asked.labels, caller)
    is_embedded = task in ("embed", "token_embed")
    prompts = await encode_texts(
        asked.inputs,
        serving,
        field="input",
        add_special_tokens=asked.add_special_tokens,
        truncate=asked.truncate_prompt_tokens,
        before=prompt_before(asked.inputs, serving, asked.prompt_name) if is_embedded else "",
    )
    found = await _rows(task, asked, prompts, serving, caller)
    data = [
        {
            "index": index,
            "object": "pooling",
            "data": packed(rows) if asked.base64 else rows if task == "token_embed" else rows[0],
        }
        for index, rows in enumerate(found)
    ]
    return list_answer("pool", data, sum(map(len, prompts)), answer_head(serving, caller, model))


def _task(asked: PoolingBody, serving: "Serving") -> PoolingTask:
    """What is to be done, which the model must be able to do and the body's other fields must belong to."""
    task = asked.task or serving.labels.usual_task
    serving.labels.check(task)
    serving.labels.check_settings(
        task,
        pooling=asked.pooling,
        normalize=asked.normalize,
        dimensions=asked.dimensions,
        prompt_name=asked.prompt_name,
        use_activation=asked.use_activation,
    )
    check_dimensions(asked.dimensions, serving.embedding_size)
    return task


async def _rows(
    task: PoolingTask, asked: PoolingBody, prompts: list[list[int]], serving: "Serving", caller: Caller
) -> list[Rows]:
    if task in ("embed", "token_embed"):
        _check_size(task, prompts, serving.embedding_size)
        normalize = asked.normalize is not False
        return await serving.pool(prompts, caller, task, pooling=asked.pooling, normalize=normalize)
    use_activation = asked.use_activation is not False
    found = await serving.classify(prompts, caller)
    return [[serving.labels.read(task, scores, use_activation=use_activation)] for scores in found]


def _check_size(task: PoolingTask, prompts: list[list[int]], size: int) -> None:
    numbers = size * sum(map(len, prompts))
    if task == "token_embed" and numbers > MOST_NUMBERS:
        raise InvalidRequest(
            f"a vector of {size} numbers for every token of input makes {numbers:,}, and an answer has at most "
            f"{MOST_NUMBERS:,}; send less text at a time, or ask for the task embed",
            field="input",
        )


OPERATIONS: tuple[Operation, ...] = tuple(
    Operation(
        method="POST",
        path=path,
        summary="What a task reads off each text: a vector, one for every token, or a classifier's numbers.",
        handler=handler(answer),
        body=body_schema(POOLING_FIELDS, required=("input",)),
        answer=POOLED,
    )
    for path in PATHS
)
