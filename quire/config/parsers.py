"""How the texts of a model that calls tools and thinks are read."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

ToolParser = Literal[
    "auto", "none", "deepseek", "granite", "harmony", "hermes", "llama3", "mistral", "pythonic", "qwen3-coder"
]
ReasoningParser = Literal["auto", "none", "deepseek-r1", "harmony", "mistral", "qwen3"]


@dataclass(frozen=True, slots=True)
class ParserConfig:
    """How the texts of a model that calls tools and thinks are read."""

    _: KW_ONLY
    tool_parser: ToolParser = "auto"
    """How the model writes tool calls. auto: as its chat template shows; none: it makes none."""
    reasoning_parser: ReasoningParser = "auto"
    """How the model marks its thinking. auto: as its chat template shows; none: all of its answer is content. With
    deepseek-r1 an answer begins within the thinking, whether its prompt says so or not."""
