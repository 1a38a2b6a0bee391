"""Where an HTTP server listens, who may call it, and what a connection may take: what servers and routers share."""

from dataclasses import dataclass, field

from quire.config.bounds import LONGEST_WAIT, check, check_key, check_listed, check_path, check_seconds, listed
from quire.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Where an HTTP server listens, who may call it, and what a connection may take."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 opens it to the network."""
    port: int = 8000
    """TCP port to listen on; 0 picks a free one."""
    uds: str | None = None
    """Path of a unix socket to listen on instead of an address and a port; only its owner may connect."""
    ssl_certfile: str | None = None
    """PEM file of the TLS certificate, with its chain. Unset: plain HTTP."""
    ssl_keyfile: str | None = None
    """PEM file of the certificate's private key. Unset: it is in --ssl-certfile."""
    api_key: str | None = field(default=None, repr=False, metadata={"secret": True})
    """One key that opens everything; set as QUIRE_API_KEY it stays out of the list of processes."""
    keys: str | None = None
    """YAML file of named keys with limits of their own; `quire key` writes it, SIGHUP reads it again."""
    allowed_origins: str | None = None
    """Origins whose web pages may call it, separated by commas; * is any. Unset: its own pages only."""
    allowed_hosts: str | None = None
    """Host names it answers for beside its own, separated by commas; * is any. Unset: any where it has keys."""
    max_body_mb: float = 32.0
    """MiB of a request's body at most; files that are uploaded count as bodies."""
    max_header_kb: float = 64.0
    """KiB of a request's headers at most."""
    max_connections: int = 10_000
    """Connections at once; more are answered with 503."""
    keep_alive: float = 75.0
    """Seconds an idle connection stays open."""
    slow_reader_timeout: float = 60.0
    """Seconds a client may leave a full buffer unread before it is dropped."""
    drain_timeout: float | None = None
    """Seconds that running work may continue after SIGTERM; 0 ends it at once. Unset: as long as it takes."""

    def __post_init__(self) -> None:
        self._check_place()
        self._check_callers()
        self._check_limits()

    def origins(self) -> tuple[str, ...]:
        """Whose pages may call the server, besides its own."""
        return listed(self.allowed_origins)

    def hosts(self) -> tuple[str, ...]:
        """Names for which the server answers, beside its own."""
        return listed(self.allowed_hosts)

    def _check_place(self) -> None:
        check(
            bool(self.host.strip()), "host", self.host, "an address or a host name", "127.0.0.1 stays on this machine"
        )
        check(0 <= self.port <= 65535, "port", self.port, "a port from 0 to 65535", "8000 is the usual one")
        for name in ("uds", "ssl_certfile", "ssl_keyfile"):
            check_path(name, getattr(self, name))
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ConfigError("--ssl-keyfile has no effect without --ssl-certfile; give both, or neither.")

    def _check_callers(self) -> None:
        check_key("api_key", self.api_key)
        check_path("keys", self.keys)
        check_listed("allowed_origins", self.allowed_origins, "origins")
        for origin in self.origins():
            ok = origin == "*" or (origin.startswith(("http://", "https://")) and origin.count("/") == 2)
            fix = "write them as a browser does, as in https://example.org, or * for any"
            check(ok, "allowed_origins", self.allowed_origins, "origins with commas between them", fix)
        check_listed("allowed_hosts", self.allowed_hosts, "host names")
        for host in self.hosts():
            fix = "write them without scheme and port, as in quire.example.org, or * for any"
            ok = host == "*" or not set(host) & set("/:*")
            check(ok, "allowed_hosts", self.allowed_hosts, "host names with commas between them", fix)

    def _check_limits(self) -> None:
        ok = 0.001 <= self.max_body_mb <= 4096  # NaN fails this too
        check(ok, "max_body_mb", self.max_body_mb, "from 0.001 to 4096 MiB", "32 is the default")
        check(1 <= self.max_header_kb <= 1024, "max_header_kb", self.max_header_kb, "from 1 to 1024 KiB", "64 is usual")
        check(self.max_connections >= 1, "max_connections", self.max_connections, "1 or more", "10000 is the default")
        check_seconds("keep_alive", self.keep_alive)
        check_seconds("slow_reader_timeout", self.slow_reader_timeout)
        if self.drain_timeout is not None:
            ok = 0 <= self.drain_timeout <= LONGEST_WAIT
            fix = "leave it out to wait as long as it takes"
            check(ok, "drain_timeout", self.drain_timeout, "from 0 to 86400 seconds", fix)
