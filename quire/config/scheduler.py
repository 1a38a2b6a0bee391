"""Who runs in a step, in which order, and what happens when memory runs out."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from quire.config.bounds import check, flag
from quire.config.speculation import Speculation, read_speculation
from quire.core.errors import ConfigError
from quire.core.plugins import check_known

OwnPolicy = Literal["fcfs", "sjf", "round-robin", "priority", "fair"]
Policy = OwnPolicy | str
"""A plugin's too."""
AskedPreemption = Literal["auto", "recompute", "swap"]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Who runs in a step, in which order, and what happens when memory runs out."""

    max_num_seqs: int | None = None
    """Sequences in one step at most. Unset: 256 on a GPU, 64 on a CPU."""
    max_num_batched_tokens: int | None = None
    """Tokens in one step at most, prompts and answers together. Unset: 8192 on a GPU, 16384 there for models of fewer
    than 2 billion parameters, 512 on a CPU."""
    scheduling_policy: Policy = "fcfs"
    """Order of waiting: first come, shortest job, equal slices in turn, by priority, fair by tokens a tenant,
    or as a plugin (docs/plugins.md) says."""
    preemption_mode: AskedPreemption = "auto"
    """What happens to the KV of a preempted sequence: it is dropped and computed again (recompute) or moved to host
    memory and back (swap). auto: whichever costs less."""
    target_itl_ms: float | None = None
    """Milliseconds between tokens to aim for; prompts are cut into chunks that keep it. Unset: no target."""
    queue_timeout: float | None = None
    """Seconds a request may wait before it is given up as expired. Unset: as long as it takes."""
    long_prefill_token_threshold: int = 0
    """Tokens of one prompt in one step at most. 0: as many as the step has room for."""
    speculative_config: str | None = field(default=None, metadata={"json": True})
    """Speculative decoding, as a JSON object in vLLM's words, such as {"method": "ngram", "num_speculative_tokens": 4}:
    tokens are drafted, and several verified in one step. Answers stay the same. Unset: one token a step."""
    round_robin_slice: int | None = None
    """Tokens a sequence generates before its turn ends, under round-robin. Unset: 64."""
    priority_ageing: float | None = None
    """Seconds of waiting worth one step of priority, under priority. Unset: 30; 0: waiting counts for nothing."""

    def __post_init__(self) -> None:
        check_known("quire.schedulers", flag("scheduling_policy"), self.scheduling_policy, get_args(OwnPolicy))
        self.speculation()  # refuses what it cannot be
        self._check_counts()
        self._check_times()
        self._check_policy_settings()

    def speculation(self) -> Speculation | None:
        """What `speculative_config` says."""
        return None if self.speculative_config is None else read_speculation(self.speculative_config)

    @property
    def num_drafts(self) -> int:
        """Drafts of a sequence that one step verifies at most."""
        asked = self.speculation()
        return 0 if asked is None else asked.num_speculative_tokens

    @property
    def num_lookahead_tokens(self) -> int:
        """Slots kept ready beyond a sequence's own tokens: for the drafts of two steps in flight."""
        return 2 * self.num_drafts

    def _check_counts(self) -> None:
        leave = "leave it out to have it decided"
        for name in ("max_num_seqs", "max_num_batched_tokens", "round_robin_slice"):
            value = getattr(self, name)
            if value is not None:
                check(value >= 1, name, value, "1 or more", leave)
        threshold = self.long_prefill_token_threshold
        check(threshold >= 0, "long_prefill_token_threshold", threshold, "0 or more", "0 turns it off")
        if self.max_num_seqs and self.max_num_batched_tokens and self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"--max-num-batched-tokens is {self.max_num_batched_tokens} and --max-num-seqs is {self.max_num_seqs}, "
                "but every running sequence needs a token a step; raise the former or lower the latter."
            )

    def _check_times(self) -> None:
        for name in ("target_itl_ms", "queue_timeout"):
            value = getattr(self, name)
            if value is not None:
                check(math.isfinite(value) and value > 0, name, value, "more than 0", "leave it out for no limit")
        if self.priority_ageing is not None:
            ok = math.isfinite(self.priority_ageing) and self.priority_ageing >= 0
            check(ok, "priority_ageing", self.priority_ageing, "0 or more seconds", "0 turns ageing off")

    def _check_policy_settings(self) -> None:
        """A setting of a policy that is not in use would be ignored, so it is refused."""
        for name, policy in (("round_robin_slice", "round-robin"), ("priority_ageing", "priority")):
            if getattr(self, name) is not None and self.scheduling_policy != policy:
                raise ConfigError(
                    f"{flag(name)} has no effect with --scheduling-policy {self.scheduling_policy}; "
                    f"leave it out or use --scheduling-policy {policy}."
                )
