"""Where a member is: a URL, checked and taken apart."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from quire.core.errors import ConfigError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """A server that speaks HTTP."""

    url: str
    host: str
    port: int
    path: str
    """What comes before every route; empty, or without a slash at its end."""
    is_encrypted: bool

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.is_encrypted else "http"] else f"{host}:{self.port}"

    @classmethod
    def read(cls, url: str) -> "MemberAddress":
        """Raises ConfigError for anything but http://host:port or https://host:port, with a path or without."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        sane = url.isascii() and url.isprintable() and " " not in url
        if (
            not sane
            or parts.scheme not in _PORTS
            or not parts.hostname
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise ConfigError(
                f"{url[:200]!r} is no member; write it as http://host:8000 or https://host, without name and password"
            )
        path = parts.path.rstrip("/").removesuffix("/v1")
        known = port if port is not None else _PORTS[parts.scheme]
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        name = f"{parts.scheme}://{host}:{known}{path}"
        return cls(name, parts.hostname, known, path, parts.scheme == "https")
