"""LangChain: a chat, a stream, a tool that is really called, and an answer as a pydantic model.

pip install langchain-openai
python examples/ecosystem/langchain_chat.py          # the server: QUIRE_BASE_URL, see endpoint.py
"""

from typing import Literal

from endpoint import API_KEY, MODEL, URL
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field

chat = ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key=API_KEY, temperature=0, max_tokens=40)


@tool
def temperature_of(city: Literal["Paris", "Oslo", "Cairo"]) -> str:
    """The temperature of a city, in degrees Celsius."""
    return {"Paris": "21", "Oslo": "8", "Cairo": "34"}[city]


class Review(BaseModel):
    """What a review of a film says, and nothing beside it: a schema leaves objects open unless it closes them."""

    model_config = ConfigDict(extra="forbid")

    verdict: Literal["good", "bad"]
    stars: int = Field(ge=1, le=5)


def main() -> None:
    question = "What is the capital of France? Answer in one sentence."
    print("chat:", chat.invoke(question).content)

    print("stream: ", end="")
    for chunk in chat.stream(question):
        print(chunk.content, end="|", flush=True)
    print()

    # A small model seldom calls of its own accord; tool_choice makes it, and a grammar holds it to the arguments.
    asked = HumanMessage("How warm is it in Cairo?")
    said = chat.bind_tools([temperature_of], tool_choice="temperature_of", strict=True).invoke([asked])
    results = [temperature_of.invoke(call) for call in said.tool_calls]
    print("tool:", *(f"{call['name']}({call['args']['city']})" for call in said.tool_calls), "→", results[0].content)
    print("answer:", chat.invoke([asked, said, *results]).content)

    review = chat.with_structured_output(Review).invoke("A wonderful film, I loved every minute of it.")
    print("structured:", repr(review))


if __name__ == "__main__":
    main()
