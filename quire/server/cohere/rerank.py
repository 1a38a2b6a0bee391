"""POST /v1/rerank, also known as /v2/rerank and /rerank: documents in the order of how well they answer a query."""

from functools import partial
from typing import TYPE_CHECKING, Any

from quire.protocol.cohere.rerank_body import RERANK_FIELDS, RerankBody, read_rerank_body
from quire.protocol.ignored import Ignored
from quire.protocol.openai.schema import body as body_schema
from quire.protocol.schemas.answers import RERANKED
from quire.protocol.writer import Body
from quire.server.caller import Caller
from quire.server.openai.compare import Comparison, compare
from quire.server.openai.head import answer_head, note_labels
from quire.server.openai.list_answer import handler, usage
from quire.server.operation import Operation

if TYPE_CHECKING:
    from quire.server.serving import Serving

_VERSIONS = {"/v1/rerank": "1", "/v2/rerank": "2", "/rerank": "1"}
"""Paths, and the version of Cohere's API that answers to each say they follow."""


async def answer(body: object, serving: "Serving", caller: Caller, ignored: Ignored, *, version: str) -> Body:
    """The answer to a rerank body. Raises an InvalidRequest for anything that cannot be honoured."""
    asked = read_rerank_body(body, ignored)
    model = serving.check_model(asked.model, caller, takes_adapters=False)
    note_labels(asked.labels, caller)
    wanted = Comparison(
        [asked.query],
        asked.documents,
        ("query", "documents"),
        add_special_tokens=asked.add_special_tokens,
        truncate=asked.truncate_prompt_tokens,
        use_activation=asked.use_activation,
        instruction=asked.instruction,
        is_search=True,
        most_of_second=asked.max_tokens_per_doc,
    )
    found = await compare(wanted, serving, caller)
    head, used = answer_head(serving, caller, model), found.num_tokens
    return {
        "id": f"rerank-{head.identity}",
        "model": head.model,
        "results": _results(asked, found.scores),
        "usage": usage(used),
        "meta": {"api_version": {"version": version}, "tokens": {"input_tokens": used}},
    }


def _results(asked: RerankBody, scores: list[float]) -> list[dict[str, Any]]:
    """The best first; of equal ones the one that came first."""
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.top_n]
    return [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": asked.documents[index]}} if asked.return_documents else {})
        for index in best
    ]


OPERATIONS: tuple[Operation, ...] = tuple(
    Operation(
        method="POST",
        path=path,
        summary="Documents in the order of how well they answer a query.",
        handler=handler(partial(answer, version=version)),
        body=body_schema(RERANK_FIELDS, required=("query", "documents")),
        answer=RERANKED,
    )
    for path, version in _VERSIONS.items()
)
