"""Which clients to simulate: a trace, or random requests. Flags of `quire simulate` come from here."""

import math
from dataclasses import dataclass, fields
from pathlib import Path

from quire.config.bounds import check, flag
from quire.core.errors import ConfigError
from quire.simulation.lengths import SHAREGPT, SHAREGPT_INPUT, SHAREGPT_OUTPUT, Lengths, parse_lengths
from quire.simulation.limits import LONGEST, MAX_NUMBER, WIDEST_BEAM, TimeUnit

USUAL_REQUESTS = 1000
_OF_TRACES = ("trace", "trace_time", "trace_block")
_OF_BOTH = ("num_requests", "tenant_weights")


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """What the clients ask."""

    num_requests: int | None = None
    """Requests to simulate. Unset: 1000 random ones, or all of a trace."""
    request_rate: float | None = None
    """Requests a second, at random moments (Poisson). Unset: all arrive at once."""
    input_tokens: str = SHAREGPT
    """Prompt lengths: a number (512), a range (100:1024), or sharegpt for a long-tailed mix with a mean of 161."""
    output_tokens: str = SHAREGPT
    """Answer lengths, likewise; the sharegpt mean is 338. Schedulers cannot see them."""
    max_tokens: int | None = None
    """Output tokens that clients ask for at most. Unset: as many as the context holds."""
    tenants: str | None = None
    """Tenants and their shares of the requests, such as a=1,b=9. Unset: one tenant."""
    tenant_weights: str | None = None
    """What tenants should get under the fair policy, such as a=2,b=1. Unset: equal."""
    high_priority: float = 0.0
    """Share of the requests with a better priority, for the priority policy."""
    prefix_groups: int = 0
    """Groups of users, each with a system prompt of its own that comes before their prompts."""
    prefix_tokens: int = 512
    """Tokens of each of those system prompts."""
    long_prompt_every: float | None = None
    """Seconds between additional requests with a long prompt. Unset: none."""
    long_prompt_tokens: int = 32768
    """Tokens of each of those long prompts."""
    n: int = 1
    """Sequences that each request samples from its one prompt."""
    beam_width: int = 1
    """Beams of each request; above 1, every step is read before the next is planned."""
    seed: int = 0
    """Seed of everything random."""
    trace: Path | None = None
    """Requests from a .csv or .jsonl file: arrival_time, input_length, output_length (hash_ids, tenant, priority), or
    as in the Azure and Mooncake traces."""
    trace_time: TimeUnit = "auto"
    """Unit of a trace's timestamp. auto: milliseconds where they are whole numbers, as in the Mooncake traces."""
    trace_block: int = 512
    """Prompt tokens that each of a trace's hash_ids stands for."""

    def __post_init__(self) -> None:
        if self.trace is None:
            self._refuse(_OF_TRACES, "without --trace")
        else:
            random = [field.name for field in fields(self) if field.name not in (*_OF_TRACES, *_OF_BOTH)]
            self._refuse(random, "with --trace, which gives it")
        self._check_counts()
        self._check_rates()
        self._check_together()
        self.lengths()
        strangers = self.weights().keys() - self.tenant_shares().keys() if self.trace is None else set()
        if strangers:
            raise ConfigError(f"--tenant-weights names {sorted(strangers)[0]!r}, which is none of the --tenants.")

    def lengths(self) -> tuple[Lengths, Lengths]:
        """How long prompts and answers are."""
        return (
            parse_lengths(self.input_tokens, "--input-tokens", SHAREGPT_INPUT),
            parse_lengths(self.output_tokens, "--output-tokens", SHAREGPT_OUTPUT),
        )

    def tenant_shares(self) -> dict[str, float]:
        """Tenants and their shares of the requests; empty where there is only one."""
        return _parse_shares(self.tenants, "--tenants")

    def weights(self) -> dict[str, float]:
        """What tenants should get; those not named weigh 1."""
        return _parse_shares(self.tenant_weights, "--tenant-weights")

    def _refuse(self, names: list[str] | tuple[str, ...], why: str) -> None:
        """A setting that would be ignored is refused."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                raise ConfigError(f"{flag(name)} has no effect {why}; leave it out.")

    def _check_counts(self) -> None:
        for name, low, high in (
            ("num_requests", 1, MAX_NUMBER),
            ("max_tokens", 1, LONGEST),
            ("prefix_groups", 0, MAX_NUMBER),
            ("prefix_tokens", 1, LONGEST),
            ("long_prompt_tokens", 1, LONGEST),
            ("n", 1, MAX_NUMBER),  # sampling parameters have a bound of their own
            ("beam_width", 1, WIDEST_BEAM),
            ("trace_block", 1, LONGEST),
        ):
            value = getattr(self, name)
            ok = value is None or low <= value <= high
            check(ok, name, value, f"a whole number from {low} to {high}", "leave it out for the usual")

    def _check_rates(self) -> None:
        for name in ("request_rate", "long_prompt_every"):
            value = getattr(self, name)
            ok = value is None or (math.isfinite(value) and value > 0)
            check(ok, name, value, "more than 0", "leave it out for " + ("all at once" if "rate" in name else "none"))
        check(
            0 <= self.high_priority <= 1, "high_priority", self.high_priority, "a share from 0 to 1", "0.1 is a tenth"
        )

    def _check_together(self) -> None:
        if self.n > 1 and self.beam_width > 1:
            raise ConfigError("--n and --beam-width are both above 1, but a request is one or the other; drop one.")
        if self.long_prompt_every is not None and self.request_rate is None:
            raise ConfigError("--long-prompt-every needs a --request-rate: when all arrive at once, no time passes.")
        if self.prefix_tokens != 512 and not self.prefix_groups:
            raise ConfigError("--prefix-tokens has no effect without --prefix-groups; give both.")
        if self.long_prompt_tokens != 32768 and self.long_prompt_every is None:
            raise ConfigError("--long-prompt-tokens has no effect without --long-prompt-every; give both.")


def _parse_shares(text: str | None, name: str) -> dict[str, float]:
    """`a=1,b=9` as numbers by name."""
    shares: dict[str, float] = {}
    for part in text.split(",") if text is not None else []:
        tenant, _, number = (piece.strip() for piece in part.partition("="))
        try:
            share = float(number)
        except ValueError:
            share = 0.0
        if not tenant or tenant in shares or not math.isfinite(share) or share <= 0:
            raise ConfigError(
                f"{name} is {text!r}, but {part.strip()!r} is no new name with a positive number; "
                "write it like a=1,b=9."
            )
        shares[tenant] = share
    return shares
