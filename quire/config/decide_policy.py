"""The order in which requests run, and how long one may wait for it."""

from quire.config.resolved import Choice, PolicySettings
from quire.config.scheduler import SchedulerConfig


def decide_policy(asked: SchedulerConfig, choices: list[Choice]) -> str:
    settings = policy_settings(asked)
    detail = {
        "fcfs": "requests run in the order they came",
        "sjf": "requests that are nearly done run first",
        "round-robin": f"every sequence in turn, {settings.round_robin_slice} tokens at a time",
        "priority": f"by priority; {settings.priority_ageing:g} s of waiting are worth one step",
        "fair": "tenants get equal shares of tokens",
    }
    reason = detail.get(asked.scheduling_policy, "a plugin")
    choices.append(Choice("scheduling_policy", asked.scheduling_policy, reason))
    return asked.scheduling_policy


def policy_settings(asked: SchedulerConfig) -> PolicySettings:
    usual = PolicySettings()
    return PolicySettings(
        round_robin_slice=usual.round_robin_slice if asked.round_robin_slice is None else asked.round_robin_slice,
        priority_ageing=usual.priority_ageing if asked.priority_ageing is None else asked.priority_ageing,
    )


def decide_queue_timeout(asked: SchedulerConfig, choices: list[Choice]) -> float | None:
    timeout = asked.queue_timeout
    if timeout is None:
        choices.append(Choice("queue_timeout", "none", "requests wait as long as it takes"))
    else:
        choices.append(Choice("queue_timeout", f"{timeout:g} s", "asked for"))
    return timeout
