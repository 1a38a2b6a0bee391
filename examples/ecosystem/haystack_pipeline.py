"""Haystack: a pipeline that retrieves and answers, a stream, an agent that calls its tool, and an answer by a schema.

pip install haystack-ai
python examples/ecosystem/haystack_pipeline.py       # the server: QUIRE_BASE_URL, see endpoint.py

Any model embeds, but one made for it does so far better: serve it too, and name it by QUIRE_EMBEDDING_URL.
"""

import os
from typing import Annotated, Any, Literal

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")

from endpoint import API_KEY, MODEL, URL, first_model, server_url
from haystack import Document, Pipeline
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import tool
from haystack.utils import Secret
from pydantic import BaseModel, ConfigDict

KEY = Secret.from_token(API_KEY)
TEXTS = [
    "The library lends books for four weeks.",
    "The swimming pool is heated from May to September.",
    "The town hall issues passports on Tuesdays.",
]
QUESTION = "For how long may I keep a book of the library?"


def generator(**more: Any) -> OpenAIChatGenerator:
    """A chat model; `more` goes into the bodies of its requests."""
    options = {"temperature": 0, "max_tokens": 60, **more}
    return OpenAIChatGenerator(api_key=KEY, model=MODEL, api_base_url=f"{URL}/v1", generation_kwargs=options)


def retrieving_pipeline() -> Pipeline:
    """Question → vector → the two nearest texts → prompt → answer."""
    embedding_url = server_url("QUIRE_EMBEDDING_URL", URL)
    options: dict[str, Any] = {
        "api_key": KEY,
        "model": first_model(embedding_url, API_KEY),
        "api_base_url": f"{embedding_url}/v1",
    }
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    embedded = OpenAIDocumentEmbedder(progress_bar=False, **options).run([Document(content=text) for text in TEXTS])
    store.write_documents(embedded["documents"])
    template = "{% for text in documents %}{{ text.content }}\n{% endfor %}\nAnswer in one sentence: {{ question }}"
    pipeline = Pipeline()
    pipeline.add_component("embedder", OpenAITextEmbedder(**options))
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=2))
    pipeline.add_component("prompt", ChatPromptBuilder([ChatMessage.from_user(template)], required_variables="*"))
    pipeline.add_component("llm", generator())
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "llm.messages")
    return pipeline


@tool
def due_date(weeks: Annotated[Literal[1, 2, 3, 4], "how many weeks from today"]) -> str:
    """The day on which a book that is lent today is due."""
    return f"in {7 * weeks} days"


class Loan(BaseModel):
    """What somebody borrows, and nothing beside it: a schema leaves objects open unless it closes them."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["book", "film"]
    is_for_a_child: bool


def main() -> None:
    pipeline = retrieving_pipeline()
    asked = {"embedder": {"text": QUESTION}, "prompt": {"question": QUESTION}}
    found = pipeline.run(asked, include_outputs_from={"retriever"})
    print("found:", *(document.content for document in found["retriever"]["documents"]), sep="\n  ")
    print("answer:", found["llm"]["replies"][0].text)

    print("stream: ", end="")
    generator().run(
        [ChatMessage.from_user("What is the capital of France? Answer in one sentence.")],
        streaming_callback=lambda chunk: print(chunk.content, end="|", flush=True),
    )
    print()

    # A small model seldom calls of its own accord; tool_choice makes it, and the agent ends when its tool has run.
    agent = Agent(
        chat_generator=generator(tool_choice="required", parallel_tool_calls=False),
        tools=[due_date],
        exit_conditions=["due_date"],
        max_agent_steps=3,
    )
    for message in agent.run(messages=[ChatMessage.from_user("When is the book due in 2 weeks?")])["messages"]:
        for call in message.tool_calls:
            print("tool:", call.tool_name, call.arguments)
        for result in message.tool_call_results:
            print("result:", result.result)

    reply = generator(response_format=Loan).run([ChatMessage.from_user("A picture book for my daughter, please.")])
    print("structured:", repr(Loan.model_validate_json(reply["replies"][0].text)))


if __name__ == "__main__":
    main()
