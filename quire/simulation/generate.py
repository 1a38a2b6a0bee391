"""Random requests: the same seed gives the same ones; lengths, moments and labels each have a source of their own."""

import math
from collections.abc import Iterator
from random import Random

from quire.core.errors import ConfigError
from quire.core.request import DEFAULT_TENANT
from quire.simulation.lengths import Between
from quire.simulation.workload import SimulatedRequest
from quire.simulation.workload_config import USUAL_REQUESTS, WorkloadConfig

HIGH_PRIORITY = -1
"""Smaller goes first, and 0 is what a client who says nothing has."""
LONG_PROMPT_OUTPUT = 64
"""Tokens of answer to a long prompt."""


class RandomRequests:
    """The requests of a configuration without a trace, for a context of `max_model_len` tokens."""

    def __init__(self, config: WorkloadConfig, max_model_len: int) -> None:
        self._config = config
        self._longest = max_model_len
        self._input, self._output = config.lengths()
        self._shared = config.prefix_tokens if config.prefix_groups else 0
        shares = config.tenant_shares() or {DEFAULT_TENANT: 1.0}
        self._tenants, self._shares = list(shares), list(shares.values())
        self._check_prompts()

    def __iter__(self) -> Iterator[SimulatedRequest]:
        """In the order of their arrival. Random lengths beyond the context are cut."""
        config = self._config
        arrivals, lengths, labels = (Random(f"{config.seed} {name}") for name in ("arrivals", "lengths", "labels"))
        now, number = 0.0, 0
        every = config.long_prompt_every or math.inf
        next_long = every
        for _ in range(config.num_requests or USUAL_REQUESTS):
            while next_long <= now:
                yield self._long(number, next_long)
                number, next_long = number + 1, next_long + every
            yield self._usual(number, now, lengths, labels)
            number += 1
            if config.request_rate is not None:
                now += arrivals.expovariate(config.request_rate)

    def _usual(self, number: int, now: float, lengths: Random, labels: Random) -> SimulatedRequest:
        config, shared = self._config, self._shared
        given = min(shared + self._input.draw(lengths), self._longest - 1)
        is_high = config.high_priority > 0 and labels.random() < config.high_priority
        return SimulatedRequest(
            number=number,
            arrival=now,
            input_tokens=given,
            output_tokens=min(self._output.draw(lengths), self._longest - given),
            max_tokens=config.max_tokens,
            tenant=self._tenants[0] if len(self._tenants) == 1 else labels.choices(self._tenants, self._shares)[0],
            priority=HIGH_PRIORITY if is_high else 0,
            hash_ids=(labels.randrange(config.prefix_groups),) if shared else (),
            hash_block=config.prefix_tokens,
            n=config.n,
            beam_width=config.beam_width,
        )

    def _long(self, number: int, now: float) -> SimulatedRequest:
        config = self._config
        output = min(LONG_PROMPT_OUTPUT, self._longest - config.long_prompt_tokens)
        return SimulatedRequest(
            number, now, config.long_prompt_tokens, output, config.max_tokens, self._tenants[0], hash_block=1
        )

    def _check_prompts(self) -> None:
        lengths = {"--long-prompt-tokens": self._config.long_prompt_tokens} if self._config.long_prompt_every else {}
        if isinstance(self._input, Between):
            lengths["--input-tokens"] = self._shared + self._input.high
        elif self._shared:
            lengths["--prefix-tokens"] = self._shared + 1
        for name, length in lengths.items():
            if length >= self._longest:
                raise ConfigError(
                    f"{name} makes prompts of {length} tokens, but the context holds {self._longest} and an answer "
                    "needs at least one; lower it or raise --max-model-len."
                )
