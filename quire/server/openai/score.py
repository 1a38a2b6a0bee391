"""POST /v1/score, also known as /score: how well texts fit together, pair by pair or one with each of several."""

from typing import TYPE_CHECKING

from quire.protocol.ignored import Ignored
from quire.protocol.openai.embedding_body import SCORE_FIELDS, read_score_body
from quire.protocol.openai.schema import Schema
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import SCORES
from quire.protocol.writer import Body
from quire.server.caller import Caller
from quire.server.openai.compare import Comparison, compare
from quire.server.openai.head import answer_head, note_labels
from quire.server.openai.list_answer import handler, list_answer
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

PATHS = ("/v1/score", "/score")
_NAMES = (("text_1", "text_2"), ("queries", "documents"))


async def answer(body: object, serving: "Serving", caller: Caller, ignored: Ignored) -> Body:
    """The answer to a score body. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_score_body(body, ignored)
    model = serving.check_model(asked.model, caller, takes_adapters=False)
    note_labels(asked.labels, caller)
    wanted = Comparison(
        asked.first,
        asked.second,
        asked.names,
        add_special_tokens=asked.add_special_tokens,
        truncate=asked.truncate_prompt_tokens,
        use_activation=asked.use_activation,
        instruction=asked.instruction,
    )
    found = await compare(wanted, serving, caller)
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(found.scores)]
    return list_answer("score", data, found.num_tokens, answer_head(serving, caller, model))


def _schema() -> Schema:
    """One name of each side; the other two would be refused beside them."""
    others = {name for names in _NAMES for name in names}
    shared = {name: schema for name, schema in SCORE_FIELDS.items() if name not in others}
    sides = [{name: SCORE_FIELDS[name] for name in names} for names in _NAMES]
    return {"anyOf": [body_schema({**side, **shared}, required=tuple(side)) for side in sides]}


OPERATIONS: tuple[Operation, ...] = tuple(
    Operation(
        method="POST",
        path=path,
        summary="How well texts fit together: what a cross-encoder says of each pair, or the cosine of the angle "
        "between their vectors.",
        handler=handler(answer),
        body=_schema(),
        answer=SCORES,
    )
    for path in PATHS
)
