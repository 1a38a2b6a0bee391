"""instructor: pydantic models out of OpenAI's API, whole and field by field, and out of Anthropic's.

pip install instructor anthropic
python examples/ecosystem/instructor_records.py      # the server: QUIRE_BASE_URL, see endpoint.py
"""

from typing import Literal

import instructor
from anthropic import Anthropic
from endpoint import API_KEY, MODEL, URL
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Ticket(BaseModel):
    """What a message to the support is about; a schema leaves objects open unless it closes them."""

    model_config = ConfigDict(extra="forbid")

    topic: Literal["billing", "delivery", "damage"]
    is_angry: bool
    priority: int = Field(ge=1, le=3)


def main() -> None:
    message = "The parcel came yesterday, and the lamp in it is broken. I want my money back at once!"
    messages = [{"role": "user", "content": message}]

    with OpenAI(base_url=f"{URL}/v1", api_key=API_KEY) as openai_client:
        client = instructor.from_openai(openai_client, mode=instructor.Mode.JSON_SCHEMA)
        asked = {"model": MODEL, "messages": messages, "response_model": Ticket, "max_tokens": 80, "temperature": 0}
        print("schema:", repr(client.create(**asked)))
        for part in client.create_partial(**asked):
            print("part:", part.model_dump(exclude_none=True))
        client = instructor.from_openai(openai_client, mode=instructor.Mode.TOOLS)
        print("call:", repr(client.create(**asked)))

    with Anthropic(base_url=URL, api_key=API_KEY) as anthropic_client:
        client = instructor.from_anthropic(anthropic_client, mode=instructor.Mode.TOOLS)
        print("message:", repr(client.create(model=MODEL, messages=messages, response_model=Ticket, max_tokens=80)))


if __name__ == "__main__":
    main()
