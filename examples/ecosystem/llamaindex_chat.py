"""LlamaIndex: a chat, a stream, a tool that is really called, and an answer as a pydantic model.

pip install llama-index-llms-openai-like
python examples/ecosystem/llamaindex_chat.py         # the server: QUIRE_BASE_URL, see endpoint.py
"""

from typing import Literal

from endpoint import API_KEY, MODEL, URL
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, ConfigDict

llm = OpenAILike(
    model=MODEL,
    api_base=f"{URL}/v1",
    api_key=API_KEY,
    is_chat_model=True,
    is_function_calling_model=True,
    temperature=0,
    max_tokens=40,
)


def price_of(fruit: Literal["apple", "banana", "cherry"]) -> str:
    """The price of a kilogram of a fruit, in euros."""
    return {"apple": "2.50", "banana": "1.80", "cherry": "9.00"}[fruit]


class Order(BaseModel):
    """What somebody wants to buy, and nothing beside it: a schema leaves objects open unless it closes them."""

    model_config = ConfigDict(extra="forbid")

    fruit: Literal["apple", "banana", "cherry"]
    is_urgent: bool


def main() -> None:
    question = [ChatMessage(role="user", content="What is the capital of France? Answer in one sentence.")]
    print("chat:", llm.chat(question).message.content)
    print("stream:", *(piece.delta for piece in llm.stream_chat(question)), sep="|")

    # A small model seldom calls of its own accord; tool_required makes it, and a grammar holds it to the arguments.
    tool = FunctionTool.from_defaults(price_of)
    asked = ChatMessage(role="user", content="What does a kilogram of bananas cost?")
    said = llm.chat_with_tools([tool], user_msg=asked, tool_required=True, allow_parallel_tool_calls=False)
    [call] = llm.get_tool_calls_from_response(said)
    result = tool.call(**call.tool_kwargs)
    print("tool:", f"{call.tool_name}({call.tool_kwargs['fruit']})", "→", result.content)
    told = ChatMessage(role="tool", content=result.content, additional_kwargs={"tool_call_id": call.tool_id})
    print("answer:", llm.chat([asked, said.message, told]).message.content)

    order = llm.structured_predict(Order, PromptTemplate("Bring me a cherry, and be quick about it!"))
    print("structured:", repr(order))


if __name__ == "__main__":
    main()
