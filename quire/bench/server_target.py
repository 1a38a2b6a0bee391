"""Which server is measured and how it is asked. Flags of `quire bench serve` come from here."""

from dataclasses import dataclass, field
from pathlib import Path

from quire.bench.endpoint import EndpointName, parse_extra
from quire.bench.http.address import parse_address
from quire.config.bounds import check


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """Which server is measured and how it is asked."""

    url: str = "http://127.0.0.1:8000"
    """Base URL of any server that speaks OpenAI's protocol: quire, vLLM, SGLang, llama.cpp's."""
    endpoint: EndpointName = "completions"
    """Which of its endpoints."""
    model: str | None = None
    """The model's name there. Unset: the first that the server lists."""
    tokenizer: str | None = None
    """A model or folder whose tokenizer counts tokens where the server does not, and makes exact text prompts. Unset:
    the model's own where its files are on this machine."""
    api_key: str | None = field(default=None, repr=False)
    """Key to send; the variable QUIRE_API_KEY keeps it out of the list of processes."""
    temperature: float | None = 0.0
    """Of sampling; none leaves it to the server."""
    extra_body: str | None = None
    """More fields of every request's body, as a JSON object; null takes one of ours away: {"ignore_eos": null}."""
    metrics_every: float = 1.0
    """Seconds between two looks at the server's /metrics, for batch, KV use and drafts; 0 looks never."""

    def __post_init__(self) -> None:
        parse_address(self.url)
        parse_extra(self.extra_body)
        check(self.metrics_every >= 0, "metrics_every", self.metrics_every, "0 or more seconds", "0 looks never")
        if self.temperature is not None:
            check(self.temperature >= 0, "temperature", self.temperature, "0 or more", "none leaves it to the server")

    def tokenizer_path(self, model: str) -> Path | None:
        """Where the tokenizer's files are. One that is asked for is downloaded; the model's own only if it is here."""
        from quire.models.loading.fetch import fetch, find_here

        if self.tokenizer is not None:
            return fetch(self.tokenizer).path
        return find_here(model)
