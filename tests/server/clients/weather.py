"""What the tests of all clients ask for: a call of one function, and a record; a grammar holds the model to both."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

QUESTION = "What is the weather in Paris, in celsius?"
RESULT = "21 degrees"


class GetWeather(BaseModel):
    """The weather of a city."""

    model_config = ConfigDict(extra="forbid")

    city: str = Field(max_length=20)
    unit: Literal["celsius", "fahrenheit"]


class Wind(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="forbid")

    is_strong: bool
    origin: Literal["north", "south"]


class Report(BaseModel):
    """A report of the weather: every value is one of a few, for some clients leave out bounds of lengths."""

    model_config = ConfigDict(extra="forbid")

    sky: Literal["clear", "cloudy"]
    wind: Wind


NAME = "get_weather"
SCHEMA: dict[str, Any] = GetWeather.model_json_schema()
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": NAME, "description": "The weather of a city.", "parameters": SCHEMA},
}
"""As OpenAI's chats have it; whoever calls it by another name writes their own."""
CHOICE: dict[str, Any] = {"type": "function", "function": {"name": NAME}}
