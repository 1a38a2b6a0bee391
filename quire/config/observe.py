"""What is logged and in which form."""

from dataclasses import dataclass
from typing import Literal

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class ObserveConfig:
    """What is logged and in which form."""

    log_level: LogLevel = "info"
    """Least serious message to log."""
    log_format: LogFormat = "text"
    """text for people, json for machines (one object a line)."""
