"""LlamaIndex, retrieval and an answer from it: quire embeds the texts, ranks those that were found, and answers.

pip install llama-index-llms-openai-like llama-index-embeddings-openai-like
python examples/ecosystem/llamaindex_rag.py          # the server: QUIRE_BASE_URL, see endpoint.py

Any model embeds and ranks, but one made for it does so far better. Serve it beside the one that answers, and name it:
quire serve ./all-MiniLM-L6-v2 --port 8001           # QUIRE_EMBEDDING_URL=http://127.0.0.1:8001
quire serve ./a-cross-encoder --port 8002            # QUIRE_RERANK_URL=http://127.0.0.1:8002, else it ranks by vectors
"""

import json
from urllib.request import Request, urlopen

from endpoint import API_KEY, MODEL, URL, first_model, server_url
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

TEXTS = [
    "The museum of clocks opens at ten in the morning and closes at six. On Mondays it stays shut.",
    "A ticket costs eight euros. Children under twelve pay nothing.",
    "The tower clock of 1643 still runs; a keeper winds it by hand every second day.",
    "Dogs may not enter, apart from guide dogs. There is a shady place for them in the yard.",
    "The café in the cellar serves soup, bread and apple cake until five.",
    "Line 4 of the tram stops in front of the door. There is no car park.",
]
QUESTION = "How much is a ticket for the museum?"


class Reranker(BaseNodePostprocessor):
    """Asks a server's /v1/rerank which of the texts that were found answer the question best."""

    url: str
    model: str
    top_n: int

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None
        body = {
            "model": self.model,
            "query": query_bundle.query_str,
            "documents": [node.get_content() for node in nodes],
            "top_n": self.top_n,
        }
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"}
        with urlopen(Request(f"{self.url}/v1/rerank", json.dumps(body).encode(), headers), timeout=60) as answer:
            ranked = json.load(answer)["results"]
        return [NodeWithScore(node=nodes[one["index"]].node, score=one["relevance_score"]) for one in ranked]


def main() -> None:
    embedding_url = server_url("QUIRE_EMBEDDING_URL", URL)
    rerank_url = server_url("QUIRE_RERANK_URL", embedding_url)
    embedder = OpenAILikeEmbedding(
        model_name=first_model(embedding_url, API_KEY), api_base=f"{embedding_url}/v1", api_key=API_KEY
    )
    reranker = Reranker(url=rerank_url, model=first_model(rerank_url, API_KEY), top_n=2)
    llm = OpenAILike(
        model=MODEL, api_base=f"{URL}/v1", api_key=API_KEY, is_chat_model=True, temperature=0, max_tokens=40
    )

    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedder)
    retriever = index.as_retriever(similarity_top_k=4)
    found = retriever.retrieve(QUESTION)
    for node in found:
        print(f"found {node.score:.3f}:", node.get_content())
    engine = RetrieverQueryEngine.from_args(retriever, llm=llm, node_postprocessors=[reranker])
    answer = engine.query(QUESTION)
    for node in answer.source_nodes:
        print(f"ranked {node.score:.3f}:", node.get_content())
    print("answer:", answer)


if __name__ == "__main__":
    main()
