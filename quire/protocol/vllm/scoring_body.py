"""Bodies of vLLM's /generative_scoring, and the scores that answers hold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import InvalidRequest
from quire.core.outputs import RequestOutput
from quire.protocol.ignored import Ignored
from quire.protocol.openai.answers import AnswerHead, usage
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import IDENTIFIERS, LONGEST_MODEL, MODEL, read_labels
from quire.protocol.openai.prompts import PROMPTS, TEXT, read_prompts
from quire.protocol.openai.sampling_fields import SAMPLING
from quire.protocol.openai.schema import TOKEN_ID, Schema, either, flag
from quire.protocol.writer import Body, WholeWriter

_TOKENS: Schema = {"type": "array", "items": TOKEN_ID, "minItems": 1}
SCORING_FIELDS: dict[str, Schema] = {
    "model": MODEL,
    "query": either(TEXT, _TOKENS),
    "items": PROMPTS,
    "label_token_ids": {**_TOKENS, "maxItems": MAX_LOGPROBS},
    "apply_softmax": flag(description="Score among the labels alone, unless false: then among the whole vocabulary."),
    "item_first": flag(description="An item stands before the query instead of after it."),
    "add_special_tokens": flag(description="To the query."),
    "priority": SAMPLING["priority"],
    **IDENTIFIERS,
}


@dataclass(frozen=True, slots=True)
class ScoringBody:
    """A query, and items of which each is put to it."""

    model: str | None
    query: str | list[int]
    items: list[str | list[int]]
    label_token_ids: tuple[int, ...]
    """The score is the first one's."""
    apply_softmax: bool
    item_first: bool
    add_special_tokens: bool
    priority: int
    labels: dict[str, str]


def read_scoring_body(values: object, ignored: Ignored | None = None) -> ScoringBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = Fields(object_of(values), known=SCORING_FIELDS, ignored=ignored or Ignored())
    queries = read_prompts("query", given.get("query"))
    if len(queries) != 1:
        raise refuse("query", given.get("query"), "one text, or the token ids of one")
    named = given.list("label_token_ids", MAX_LOGPROBS)
    if not named or not all(type(token) is int and token >= 0 for token in named):
        raise refuse("label_token_ids", named, f"a list of 1 to {MAX_LOGPROBS} token ids")
    if len(set(named)) < len(named):
        raise InvalidRequest("label_token_ids names a token twice; name each once", field="label_token_ids")
    return ScoringBody(
        model=given.text("model", longest=LONGEST_MODEL),
        query=queries[0],
        items=read_prompts("items", given.get("items")),
        label_token_ids=tuple(named),
        apply_softmax=given.flag("apply_softmax", True),
        item_first=given.flag("item_first"),
        add_special_tokens=given.flag("add_special_tokens", True),
        priority=given.whole("priority") or 0,
        labels=read_labels(given),
    )


class ScoringWriter(WholeWriter):
    """One score an item: how likely the first label is to come next."""

    def __init__(self, asked: ScoringBody, head: AnswerHead) -> None:
        self._asked = asked
        self._head = head

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        return {
            "id": f"generative-scoring-{self._head.identity}",
            "object": "list",
            "created": self._head.created,
            "model": self._head.model,
            "data": [
                {"index": index, "object": "score", "score": _score(self._asked, output)}
                for index, output in enumerate(outputs)
            ],
            "usage": usage(outputs, details=False),
        }


def _score(asked: ScoringBody, output: RequestOutput) -> float:
    logprobs = output.outputs[0].logprobs
    assert logprobs, "a request for one token with logprobs has one position"
    found = [logprobs[0][token].logprob for token in asked.label_token_ids]
    if not asked.apply_softmax:
        return math.exp(found[0])
    peak = max(found)
    weights = [math.exp(each - peak) for each in found]
    return weights[0] / sum(weights)
