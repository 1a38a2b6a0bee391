"""Where an HTTP server is: its URL, checked and taken apart."""

from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """A server's base URL."""

    host: str
    port: int
    is_encrypted: bool
    path: str
    """What comes before every route, `/v1` excluded; empty, or without a slash at its end."""

    @property
    def scheme(self) -> str:
        return "https" if self.is_encrypted else "http"

    @property
    def authority(self) -> str:
        """What a Host header says."""
        return self._name if self.port == _PORTS[self.scheme] else f"{self._name}:{self.port}"

    @property
    def url(self) -> str:
        """The same for all ways to write it."""
        return f"{self.scheme}://{self._name}:{self.port}{self.path}"

    @property
    def _name(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_http_address(url: str) -> HttpAddress | None:
    """`http://host:8000` or `https://host/path`, with or without `/v1` at its end; None for anything else, also for
    what a base URL has no use for: a user's name, a query.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment or parts.username:
        return None
    known = _PORTS[parts.scheme] if port is None else port
    return HttpAddress(parts.hostname, known, parts.scheme == "https", parts.path.rstrip("/").removesuffix("/v1"))
