"""Whether tokens are drafted, and how."""

from quire.config.resolved import Choice
from quire.config.scheduler import SchedulerConfig
from quire.config.speculation import Speculation


def decide_speculation(asked: SchedulerConfig, choices: list[Choice]) -> Speculation | None:
    speculation = asked.speculation()
    if speculation is not None:
        most = speculation.num_speculative_tokens
        reason = f"asked for; up to {most} draft{'s' * (most != 1)} of a sequence in a step, as many as pay"
        choices.append(Choice("speculation", speculation.method, reason))
    return speculation
