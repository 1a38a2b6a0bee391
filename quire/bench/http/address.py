"""Where a server is: a URL as host, port, encryption and the paths below it."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from quire.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL, taken apart."""

    host: str
    port: int
    is_encrypted: bool
    base: str
    """The path in front of `/v1`, without a slash at its end."""

    @property
    def authority(self) -> str:
        """What a Host header says."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_encrypted else 80) else f"{name}:{self.port}"

    def path(self, route: str) -> str:
        return self.base + route


def parse_address(url: str) -> Address:
    """`http://host:8000`, with or without `/v1` at its end."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"--url is {url!r}, but it must be like http://127.0.0.1:8000.")
    is_encrypted = parts.scheme == "https"
    base = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.hostname, port or (443 if is_encrypted else 80), is_encrypted, base)
