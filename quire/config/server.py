"""Where the HTTP server listens."""

from dataclasses import dataclass

from quire.config.bounds import check


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the HTTP server listens."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 opens the server to the network."""
    port: int = 8000
    """TCP port to listen on; 0 picks a free one."""

    def __post_init__(self) -> None:
        check(
            bool(self.host.strip()), "host", self.host, "an address or a host name", "127.0.0.1 stays on this machine"
        )
        check(0 <= self.port <= 65535, "port", self.port, "a port from 0 to 65535", "8000 is the usual one")
