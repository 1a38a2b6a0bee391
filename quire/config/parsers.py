"""How the texts of a model that calls tools and thinks are read."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from quire.config.bounds import flag
from quire.core.plugins import check_known

OwnToolParser = Literal[
    "auto", "none", "deepseek", "granite", "harmony", "hermes", "llama3", "mistral", "pythonic", "qwen3-coder"
]
OwnReasoningParser = Literal["auto", "none", "deepseek-r1", "harmony", "mistral", "qwen3"]
ToolParser = OwnToolParser | str
ReasoningParser = OwnReasoningParser | str
"""Plugins' too."""


@dataclass(frozen=True, slots=True)
class ParserConfig:
    """How the texts of a model that calls tools and thinks are read."""

    _: KW_ONLY
    tool_template: str = "auto"
    """How tools are shown if the model's chat template has no place for them. auto: in ordinary turns, in the format of
    Hermes; none: requests with tools are refused; FILE: as this Jinja template says."""
    tool_parser: ToolParser = "auto"
    """How the model writes tool calls. auto: as its chat template shows; none: it makes none. Other names are those of
    plugins (docs/plugins.md)."""
    reasoning_parser: ReasoningParser = "auto"
    """How the model marks its thinking. auto: as its chat template shows; none: all of its answer is content. With
    deepseek-r1 an answer begins within the thinking, whether its prompt says so or not. Other
    names are those of plugins."""

    def __post_init__(self) -> None:
        for name, own in (("tool_parser", OwnToolParser), ("reasoning_parser", OwnReasoningParser)):
            check_known("quire.parsers", flag(name), getattr(self, name), get_args(own))

    @property
    def tools_shown(self) -> str:
        """The tool template; auto only where calls in its format are read."""
        is_read = self.tool_template != "auto" or self.tool_parser in ("auto", "hermes")
        return self.tool_template if is_read else "none"
