"""POST /classify, also known as /v1/classify: which of a classifier's labels fits each text."""

from typing import TYPE_CHECKING

from quire.protocol.ignored import Ignored
from quire.protocol.openai.pooling_body import CLASSIFY_FIELDS, read_classify_body
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import CLASSIFIED
from quire.protocol.writer import Body
from quire.server.caller import Caller
from quire.server.openai.head import answer_head, note_labels
from quire.server.openai.list_answer import handler, list_answer
from quire.server.openai.vectors import encode_texts
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATHS = ("/classify", "/v1/classify")


async def answer(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Body:
    """The answer to a classify body. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_classify_body(body, ignored)
    model = serving.check_model(asked.model, caller, takes_adapters=False)
    serving.labels.check("classify")
    note_labels(asked.labels, caller)
    prompts = await encode_texts(
        asked.inputs,
        serving,
        field="input",
        add_special_tokens=asked.add_special_tokens,
        truncate=asked.truncate_prompt_tokens,
    )
    scores = await serving.classify(prompts, caller)
    found = [serving.labels.read("classify", each, use_activation=asked.use_activation) for each in scores]
    data = [
        {
            "index": index,
            "label": serving.labels.names[max(range(len(probs)), key=probs.__getitem__)],
            "probs": probs,
            "num_classes": len(probs),
        }
        for index, probs in enumerate(found)
    ]
    return list_answer("classify", data, sum(map(len, prompts)), answer_head(serving, caller, model))


OPERATIONS: tuple[Operation, ...] = tuple(
    Operation(
        method="POST",
        path=path,
        summary="The label of each text, and how likely every label is.",
        handler=handler(answer),
        body=body_schema(CLASSIFY_FIELDS, required=("input",)),
        answer=CLASSIFIED,
    )
    for path in PATHS
)
