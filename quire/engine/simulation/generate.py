"""Random workloads: the same seed gives the same requests, and each option draws from a source of its own."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from quire.config.bounds import check
from quire.core.errors import ConfigError
from quire.core.request import DEFAULT_TENANT
from quire.core.sampling_params import MAX_N
from quire.engine.simulation.lengths import SHAREGPT_INPUT, SHAREGPT_OUTPUT, Between, Lengths
from quire.engine.simulation.workload import MAX_NUMBER, SimulatedRequest

HIGH_PRIORITY = -1
"""Smaller goes first, and 0 is what a client who says nothing has."""
LONG_PROMPT_OUTPUT = 64
"""Tokens of answer to a long prompt."""
WIDEST_BEAM = 64


@dataclass(frozen=True, slots=True)
class RandomWorkload:
    """What random clients ask. Field names are those of the flags."""

    num_requests: int = 1000
    request_rate: float = math.inf
    """Requests a second, at random moments (Poisson); infinite: all at once."""
    input_tokens: Lengths = SHAREGPT_INPUT
    output_tokens: Lengths = SHAREGPT_OUTPUT
    max_tokens: int | None = None
    max_model_len: int = 1 << 24
    """Lengths drawn beyond it are cut."""
    tenants: dict[str, float] = field(default_factory=lambda: {DEFAULT_TENANT: 1.0})
    """Shares of the requests."""
    high_priority: float = 0.0
    """Share of requests that go first under `priority`."""
    prefix_groups: int = 0
    """Groups of users, each with a system prompt of its own; 0: nobody shares anything."""
    prefix_tokens: int = 512
    """Tokens of those system prompts, which come before the drawn lengths."""
    long_prompt_every: float | None = None
    """Seconds between additional requests with long prompts."""
    long_prompt_tokens: int = 32768
    n: int = 1
    beam_width: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        some = "leave it out for the usual"
        within = f"1 to {MAX_NUMBER:,}"
        check(1 <= self.num_requests <= MAX_NUMBER, "num_requests", self.num_requests, within, some)
        check(self.request_rate > 0, "request_rate", self.request_rate, "more than 0", "inf sends all at once")
        check(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", self.max_tokens, "1 or more", some)
        shares = self.tenants.values()
        good = bool(shares) and all(math.isfinite(share) and share > 0 for share in shares)
        check(good, "tenants", self.tenants, "names with positive shares, such as a=1,b=9", some)
        check(0 <= self.high_priority <= 1, "high_priority", self.high_priority, "a share from 0 to 1", some)
        check(0 <= self.prefix_groups <= MAX_NUMBER, "prefix_groups", self.prefix_groups, "0 or more", some)
        check(self.prefix_tokens >= 1, "prefix_tokens", self.prefix_tokens, "1 or more", some)
        check(1 <= self.n <= MAX_N, "n", self.n, f"1 to {MAX_N}", some)
        check(1 <= self.beam_width <= WIDEST_BEAM, "beam_width", self.beam_width, f"1 to {WIDEST_BEAM}", some)
        self._check_together()

    def _check_together(self) -> None:
        if self.n > 1 and self.beam_width > 1:
            raise ConfigError("--n and --beam-width are both above 1; a request is one or the other.")
        every = self.long_prompt_every
        if every is not None:
            ok = math.isfinite(every) and every > 0
            check(ok, "long_prompt_every", every, "more than 0 seconds", "leave it out for no long prompts")
            if math.isinf(self.request_rate):
                raise ConfigError(
                    "--long-prompt-every needs a --request-rate: all at once, no time passes between them."
                )
            self._check_prompt("--long-prompt-tokens", self.long_prompt_tokens)
        shared = self.prefix_tokens if self.prefix_groups else 0
        if isinstance(self.input_tokens, Between):
            self._check_prompt("--input-tokens", self.input_tokens.high + shared)
        elif shared:
            self._check_prompt("--prefix-tokens", shared)

    def _check_prompt(self, flag: str, length: int) -> None:
        if not 1 <= length < self.max_model_len:
            raise ConfigError(
                f"{flag} makes prompts of {length} tokens, but the context holds {self.max_model_len} with at least one "
                "token of answer; lower it or raise --max-model-len."
            )

    def requests(self) -> Iterator[SimulatedRequest]:
        """The requests in the order of their arrival."""
        arrivals, lengths, labels = (Random(f"{self.seed} {name}") for name in ("arrivals", "lengths", "labels"))
        now, number, next_long = 0.0, 0, self.long_prompt_every or math.inf
        for _ in range(self.num_requests):
            while next_long <= now:
                yield self._long(number, next_long)
                number, next_long = number + 1, next_long + (self.long_prompt_every or math.inf)
            yield self._usual(number, now, lengths, labels)
            number += 1
            now += 0.0 if math.isinf(self.request_rate) else arrivals.expovariate(self.request_rate)

    def _usual(self, number: int, now: float, lengths: Random, labels: Random) -> SimulatedRequest:
        shared = self.prefix_tokens if self.prefix_groups else 0
        given = min(shared + self.input_tokens.draw(lengths), self.max_model_len - 1)
        return SimulatedRequest(
            number=number,
            arrival=now,
            input_tokens=given,
            output_tokens=min(self.output_tokens.draw(lengths), self.max_model_len - given),
            max_tokens=self.max_tokens,
            tenant=self._tenant(labels),
            priority=HIGH_PRIORITY if self.high_priority and labels.random() < self.high_priority else 0,
            hash_ids=(labels.randrange(self.prefix_groups),) if shared else (),
            hash_block=self.prefix_tokens,
            n=self.n,
            beam_width=self.beam_width,
        )

    def _long(self, number: int, now: float) -> SimulatedRequest:
        output = min(LONG_PROMPT_OUTPUT, self.max_model_len - self.long_prompt_tokens)
        tenant = next(iter(self.tenants))
        return SimulatedRequest(number, now, self.long_prompt_tokens, output, self.max_tokens, tenant)

    def _tenant(self, labels: Random) -> str:
        if len(self.tenants) == 1:
            return next(iter(self.tenants))
        return labels.choices(list(self.tenants), list(self.tenants.values()))[0]
