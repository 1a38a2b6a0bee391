"""What a server offers beside the places where it listens: names, engines, and how work reaches them."""

import re
from dataclasses import dataclass
from typing import Literal

from quire.config.bounds import LONGEST_WAIT, check, check_listed, check_path, check_seconds, listed
from quire.config.listening import ListenConfig
from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import ConfigError

MOST_FRONTS = 64
ANY_NAME = "*"
"""Among the names of a model: clients may call it what they like."""
RoutingStrategy = Literal["prefix", "least-loaded", "round-robin"]
EngineRole = Literal["prefill", "decode", "both"]
KVCarrier = Literal["sockets", "nixl"]
_ROOT_PATH = re.compile(r"(/[\w-]+)+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServerConfig(ListenConfig):
    """Where the HTTP server listens, who may use it, and its limits."""

    root_path: str | None = None
    """Path under which a proxy offers the server, as in /llm; routes are there with and without it."""
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
    max_audio_seconds: float = 3600.0
    """Seconds of sound that a file for /v1/audio may have at most."""
    api_server_count: int = 1
    """Front processes that share the port: each reads HTTP, tokenizes and streams. One serves some 50,000 tokens a
    second; on CPUs more than one only takes cores from the engines."""
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
    kv_carrier: KVCarrier = "sockets"
    """How KV goes between engines: through shared memory and `sockets`, or read out of each other's memory with `nixl`,
    for networks with RDMA that no stranger reaches."""
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
    store: str | None = None
    """Folder for files, batches and stored responses. Unset: quire, in the user's data directory."""
    enable_docs: bool = True
    """Offer /docs and /openapi.json."""

    def __post_init__(self) -> None:
        ListenConfig.__post_init__(self)  # super() finds no class that slots=True has made anew
        self._check_names()
        self._check_engines()
        self._check_roles()
        self._check_sleep()
        self._check_requests()

    def names(self) -> tuple[str, ...]:
        """What clients may call the model, as far as they were given."""
        return listed(self.served_model_name)

    def engine_addresses(self) -> tuple[str, ...]:
        """Where engines listen that others run; empty when this server runs its own."""
        return () if self.engines in ("process", "inline") else listed(self.engines)

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

    def _check_names(self) -> None:
        check_listed("served_model_name", self.served_model_name, "names")
        for name in ("chat_template", "store"):
            check_path(name, getattr(self, name))
        if self.root_path is not None:
            ok = _ROOT_PATH.fullmatch(self.root_path) is not None
            fix = "begin with a slash and end without one, as in /llm"
            check(ok, "root_path", self.root_path, "a path of letters, digits, - and _", fix)

    def _check_engines(self) -> None:
        check(self.replicas >= 1, "replicas", self.replicas, "1 or more", "1 is a single engine")
        fix = "leave --replicas out, or --engines, which says how many there are"
        check(self.engines == "process" or self.replicas == 1, "replicas", self.replicas, "1 with --engines", fix)
        allowed = f"from 1 to {MOST_FRONTS}" if self.engines != "inline" else "1 with --engines inline"
        ok = 1 <= self.api_server_count <= (MOST_FRONTS if self.engines != "inline" else 1)
        check(ok, "api_server_count", self.api_server_count, allowed, "1 is a single front")
        for name in ("step_timeout", "outage_timeout"):
            check_seconds(name, getattr(self, name))

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

        if self.kv_carrier == "nixl" and not self.exchanges_kv:
            raise ConfigError(
                "--kv-carrier is nixl, but engines exchange no KV here; give --prefill-engines and --decode-engines, "
                "--kv-transfer or `quire engine --role` as well, or leave it out."
            )

    def _check_sleep(self) -> None:
        check_seconds("sleep_after", self.sleep_after)
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

        if self.sleep_after is not None and self.kv_carrier == "nixl":
            raise ConfigError(
                "--sleep-after is given, but an engine whose memory others read (--kv-carrier nixl) does not sleep; "
                "use --kv-carrier sockets, or leave --sleep-after out."
            )

    def _check_requests(self) -> None:
        ok = 0 <= self.max_logprobs <= MAX_LOGPROBS
        fix = f"{MAX_LOGPROBS} are the most that are ever looked up"
        check(ok, "max_logprobs", self.max_logprobs, f"from 0 to {MAX_LOGPROBS}", fix)
        if self.max_waiting_tokens is not None:
            fix = "leave it out to have it decided"
            check(self.max_waiting_tokens >= 1, "max_waiting_tokens", self.max_waiting_tokens, "1 or more", fix)
        check_seconds("max_predicted_wait", self.max_predicted_wait)
        ok = 1 <= self.max_audio_seconds <= LONGEST_WAIT
        check(ok, "max_audio_seconds", self.max_audio_seconds, "from 1 to 86400 seconds", "3600 is the default")
