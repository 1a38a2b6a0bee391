"""What is logged and in which form, and where traces go."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from quire.config.bounds import check

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class ObserveConfig:
    """What is logged and in which form, and where traces go."""

    log_level: LogLevel = "info"
    """Least serious message to log."""
    log_format: LogFormat = "text"
    """text for people, json for machines (one object a line)."""
    log_requests: bool = True
    """Log a line for every HTTP request the server answers."""
    vllm_metrics: bool = False
    """Have what vLLM measures too in /metrics under its names as well, such as vllm:num_requests_running."""
    otlp_traces_endpoint: str | None = None
    """OpenTelemetry collector that gets the server's traces (OTLP over HTTP), such as http://127.0.0.1:4318."""

    def __post_init__(self) -> None:
        if self.otlp_traces_endpoint is not None:
            check(
                _is_web_address(self.otlp_traces_endpoint),
                "otlp_traces_endpoint",
                self.otlp_traces_endpoint,
                "an http:// or https:// address",
                "a collector on this machine usually listens on http://127.0.0.1:4318",
            )


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        return False
