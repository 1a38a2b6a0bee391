"""Where the HTTP server listens, who may use it, and its limits."""

import math
import re
from dataclasses import dataclass, field
from typing import Literal

from quire.config.bounds import check
from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import ConfigError

MOST_FRONTS = 64
ANY_NAME = "*"
"""Among the names of a model: clients may call it what they like."""
RoutingStrategy = Literal["prefix", "least-loaded", "round-robin"]
EngineRole = Literal["prefill", "decode", "both"]
_LONGEST_WAIT = 24 * 3600.0
_ROOT_PATH = re.compile(r"(/[\w-]+)+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the HTTP server listens, who may use it, and its limits."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 opens the server to the network."""
    port: int = 8000
    """TCP port to listen on; 0 picks a free one."""
    root_path: str | None = None
    """Path under which a proxy offers the server, as in /llm; routes are there with and without it."""
    uds: str | None = None
    """Path of a unix socket to listen on instead of an address and a port; only its owner may connect."""
    ssl_certfile: str | None = None
    """PEM file of the TLS certificate, with its chain. Unset: plain HTTP."""
    ssl_keyfile: str | None = None
    """PEM file of the certificate's private key. Unset: it is in --ssl-certfile."""
    served_model_name: str | None = None
    """Names by which clients ask for the model, separated by commas; the first is canonical, and * is any. Unset: the
    model's own."""
    strict_api: bool = False
    """Refuse fields of requests that change no answer, hints and unknown ones, instead of naming them in the header
    x-quire-ignored."""
    max_logprobs: int = MAX_LOGPROBS
    """Logprobs that a request may ask for at each token, its prompt's and its answer's."""
    return_tokens_as_token_ids: bool = False
    """Name tokens of logprobs as token_id:5, also where a request does not ask for it."""
    enable_force_include_usage: bool = False
    """Every chunk of a stream says how many tokens were used, also where a request does not ask for it."""
    chat_template: str | None = None
    """File with a Jinja chat template to use instead of the model's own."""
    api_key: str | None = field(default=None, repr=False, metadata={"secret": True})
    """One key that opens everything; set as QUIRE_API_KEY it stays out of the list of processes."""
    keys: str | None = None
    """YAML file of named keys with limits of their own; `quire key` writes it, SIGHUP reads it again."""
    allowed_origins: str | None = None
    """Origins whose web pages may call the server, separated by commas; * is any. Unset: its own pages only."""
    allowed_hosts: str | None = None
    """Host names the server answers for beside its own, separated by commas; * is any. Unset: any where it has keys."""
    max_body_mb: float = 32.0
    """MiB of a request's body at most; files that are uploaded count as bodies."""
    max_audio_seconds: float = 3600.0
    """Seconds of sound that a file for /v1/audio may have at most."""
    max_header_kb: float = 64.0
    """KiB of a request's headers at most."""
    max_connections: int = 10_000
    """Connections at once; more are answered with 503."""
    api_server_count: int = 1
    """Front processes that share the port: each reads HTTP, tokenizes and streams. One serves some 50,000 tokens a
    second; on CPUs more than one only takes cores from the engines."""
    keep_alive: float = 75.0
    """Seconds an idle connection stays open."""
    replicas: int = 1
    """Engines that share the work, each with a copy of the model."""
    prefill_engines: int = 0
    """Engines that compute prompts for others, with --decode-engines; instead of --replicas."""
    decode_engines: int = 0
    """Engines that get the KV of prompts from --prefill-engines and answer."""
    role: EngineRole = "both"
    """What `quire engine` is for: prompts, answers, or both."""
    kv_transfer: bool = False
    """Let engines fetch KV of prefixes from each other where that is faster than computing; on with roles."""
    engines: str = "process"
    """Where engines run: `process` starts --replicas of them here; `inline` runs one inside the server's process; else
    addresses of engines that `quire engine` offers, with commas between them, as in tcp://10.0.0.5:7700."""
    engine_secret_file: str | None = None
    """File with the secret that a server and its engines on other hosts share."""
    engine_ca_file: str | None = None
    """Certificates that engines at tls:// addresses must be signed by. Unset: those the system trusts."""
    routing: RoutingStrategy = "prefix"
    """Which engine gets a request: the one with most of its prefix cached unless another has far less to do, the one
    with the fewest tokens to do, or each in turn."""
    max_waiting_tokens: int | None = None
    """Tokens that may wait for an engine; more work is refused with 429. Unset: 1,024 whole contexts."""
    max_predicted_wait: float = 600.0
    """Seconds; a request that would wait longer for its first token is refused with 429."""
    step_timeout: float = 300.0
    """Seconds a step may take before its engine counts as stuck and is replaced."""
    outage_timeout: float = 60.0
    """Seconds that requests wait while no engine is ready; after that they end with 503, and /health says why."""
    sleep_after: float | None = None
    """Seconds without requests after which an engine gives its memory back; the next request wakes it up. Unset: it
    never sleeps by itself."""
    sleep_level: int = 1
    """How deeply: 1 keeps weights in host memory, or in the file they are mapped from; 2 drops them and reads the
    checkpoint again."""
    slow_reader_timeout: float = 60.0
    """Seconds a client may leave a full buffer unread before it is dropped."""
    drain_timeout: float | None = None
    """Seconds that running work may continue after SIGTERM; 0 ends it at once. Unset: as long as it takes."""
    store: str | None = None
    """Folder for files, batches and stored responses. Unset: quire, in the user's data directory."""
    enable_docs: bool = True
    """Offer /docs and /openapi.json."""

    def __post_init__(self) -> None:
        self._check_places()
        self._check_names()
        self._check_secret()
        self._check_counts()
        self._check_seconds()

    def names(self) -> tuple[str, ...]:
        """What clients may call the model, as far as they were given."""
        return _listed(self.served_model_name)

    def engine_addresses(self) -> tuple[str, ...]:
        """Where engines listen that others run; empty when this server runs its own."""
        return () if self.engines in ("process", "inline") else _listed(self.engines)

    @property
    def num_local_engines(self) -> int:
        """Engines in processes that this server starts."""
        return self.prefill_engines + self.decode_engines or self.replicas

    def role_of(self, number: int) -> EngineRole:
        """Of one of those."""
        if not self.prefill_engines:
            return self.role
        return "prefill" if number < self.prefill_engines else "decode"

    @property
    def exchanges_kv(self) -> bool:
        """Whether engines send KV to each other."""
        return self.kv_transfer or self.prefill_engines > 0 or self.role != "both"

    @property
    def num_engines(self) -> int:
        """How many engines share the work."""
        if self.engines == "inline":
            return 1
        return len(self.engine_addresses()) or self.num_local_engines

    def origins(self) -> tuple[str, ...]:
        """Whose pages may call the server, besides its own."""
        return _listed(self.allowed_origins)

    def hosts(self) -> tuple[str, ...]:
        """Names for which the server answers, beside its own."""
        return _listed(self.allowed_hosts)

    def _check_places(self) -> None:
        check(
            bool(self.host.strip()), "host", self.host, "an address or a host name", "127.0.0.1 stays on this machine"
        )
        check(0 <= self.port <= 65535, "port", self.port, "a port from 0 to 65535", "8000 is the usual one")
        for name in ("uds", "ssl_certfile", "ssl_keyfile", "chat_template", "keys", "store"):
            value = getattr(self, name)
            if value is not None:
                check(bool(value.strip()) and "\0" not in value, name, value, "a path", "leave it out to do without")
        if self.root_path is not None:
            ok = _ROOT_PATH.fullmatch(self.root_path) is not None
            fix = "begin with a slash and end without one, as in /llm"
            check(ok, "root_path", self.root_path, "a path of letters, digits, - and _", fix)
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ConfigError("--ssl-keyfile has no effect without --ssl-certfile; give both, or neither.")

    def _check_names(self) -> None:
        for name, allowed in (
            ("served_model_name", "names"),
            ("allowed_origins", "origins"),
            ("allowed_hosts", "host names"),
        ):
            value = getattr(self, name)
            if value is not None:
                listed = _listed(value)
                ok = all(listed) and len(set(listed)) == len(listed) and not any(" " in each for each in listed)
                check(ok, name, value, f"different {allowed} with commas between them", "leave out the empty ones")
        for origin in self.origins():
            ok = origin == "*" or (origin.startswith(("http://", "https://")) and origin.count("/") == 2)
            fix = "write them as a browser does, as in https://example.org, or * for any"
            check(ok, "allowed_origins", self.allowed_origins, "origins with commas between them", fix)

        for host in self.hosts():
            fix = "write them without scheme and port, as in quire.example.org, or * for any"
            ok = host == "*" or not set(host) & set("/:*")
            check(ok, "allowed_hosts", self.allowed_hosts, "host names with commas between them", fix)

    def _check_secret(self) -> None:
        key = self.api_key
        if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
            # What was given stays out of the message: it may be a real key with a mistake in it.
            raise ConfigError(
                f"--api-key has {len(key)} characters that a header cannot all carry, but it must be printable ASCII "
                "without spaces; `quire key NAME` makes one."
            )

    def _check_counts(self) -> None:
        check(self.replicas >= 1, "replicas", self.replicas, "1 or more", "1 is a single engine")
        fix = "leave --replicas out, or --engines, which says how many there are"
        check(self.engines == "process" or self.replicas == 1, "replicas", self.replicas, "1 with --engines", fix)
        self._check_roles()
        allowed = f"from 1 to {MOST_FRONTS}" if self.engines != "inline" else "1 with --engines inline"
        ok = 1 <= self.api_server_count <= (MOST_FRONTS if self.engines != "inline" else 1)
        check(ok, "api_server_count", self.api_server_count, allowed, "1 is a single front")
        check(self.sleep_level in (1, 2), "sleep_level", self.sleep_level, "1 or 2", "1 wakes up faster")
        if self.sleep_after is not None and self.engine_addresses():
            raise ConfigError(
                "--sleep-after is for engines that this server starts, and --engines names others; give it to "
                "`quire engine` on their hosts."
            )
        if self.sleep_after is not None and self.sleep_level == 2 and self.exchanges_kv:
            raise ConfigError(
                "--sleep-level is 2, but engines that exchange KV keep their blocks while they sleep; use "
                "--sleep-level 1."
            )
        ok = 0 <= self.max_logprobs <= MAX_LOGPROBS
        fix = f"{MAX_LOGPROBS} are the most that are ever looked up"
        check(ok, "max_logprobs", self.max_logprobs, f"from 0 to {MAX_LOGPROBS}", fix)
        check(self.max_connections >= 1, "max_connections", self.max_connections, "1 or more", "10000 is the default")
        if self.max_waiting_tokens is not None:
            fix = "leave it out to have it decided"
            check(self.max_waiting_tokens >= 1, "max_waiting_tokens", self.max_waiting_tokens, "1 or more", fix)
        ok = 0.001 <= self.max_body_mb <= 4096  # NaN fails this too
        check(ok, "max_body_mb", self.max_body_mb, "from 0.001 to 4096 MiB", "32 is the default")
        ok = 1 <= self.max_audio_seconds <= _LONGEST_WAIT
        check(ok, "max_audio_seconds", self.max_audio_seconds, "from 1 to 86400 seconds", "3600 is the default")
        check(1 <= self.max_header_kb <= 1024, "max_header_kb", self.max_header_kb, "from 1 to 1024 KiB", "64 is usual")

    def _check_roles(self) -> None:
        for name in ("prefill_engines", "decode_engines"):
            value = getattr(self, name)
            check(value >= 0, name, value, "0 or more", "0 is none: every engine computes prompts and answers")
        prefill, decode = self.prefill_engines, self.decode_engines
        if bool(prefill) != bool(decode):
            given, missing = ("prefill", "decode") if prefill else ("decode", "prefill")
            raise ConfigError(
                f"--{given}-engines is {prefill or decode}, but --{missing}-engines is 0; each needs at least one of "
                "the other, or leave out both."
            )
        if prefill and (self.replicas != 1 or self.engines != "process"):
            raise ConfigError(
                f"--prefill-engines and --decode-engines say how many engines this server starts, and --replicas is "
                f"{self.replicas}, --engines {self.engines!r}; leave those out. Engines elsewhere have a role of their "
                "own: quire engine --role."
            )

    def _check_seconds(self) -> None:
        names = ("keep_alive", "max_predicted_wait", "step_timeout", "outage_timeout", "slow_reader_timeout")
        for name in (*names, "sleep_after"):
            value = getattr(self, name)
            if value is None:
                continue
            ok = math.isfinite(value) and 0 < value <= _LONGEST_WAIT
            check(ok, name, value, "more than 0 and at most 86400 seconds", "leave it out for the default")
        if self.drain_timeout is not None:
            ok = math.isfinite(self.drain_timeout) and 0 <= self.drain_timeout <= _LONGEST_WAIT
            fix = "leave it out to wait as long as it takes"
            check(ok, "drain_timeout", self.drain_timeout, "from 0 to 86400 seconds", fix)


def _listed(value: str | None) -> tuple[str, ...]:
    return () if value is None else tuple(each.strip() for each in value.split(","))
