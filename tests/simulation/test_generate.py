"""Random requests: reproducible, in order, with the shares and lengths that were asked for."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from quire.core.errors import ConfigError
from quire.simulation.generate import HIGH_PRIORITY, RandomRequests
from quire.simulation.workload import SimulatedRequest
from quire.simulation.workload_config import WorkloadConfig


def generate(max_model_len: int = 2048, **asked: Any) -> list[SimulatedRequest]:
    return list(RandomRequests(WorkloadConfig(**asked), max_model_len))


def test_the_same_seed_gives_the_same_requests() -> None:
    assert generate(num_requests=50, seed=3) == generate(num_requests=50, seed=3)
    assert generate(num_requests=50, seed=3) != generate(num_requests=50, seed=4)


def test_options_do_not_disturb_each_other() -> None:
    plain, labelled = generate(num_requests=50), generate(num_requests=50, tenants="a=1,b=1", request_rate=5.0)
    assert [r.output_tokens for r in plain] == [r.output_tokens for r in labelled]


def test_lengths_stay_inside_the_context() -> None:
    requests = generate(256, num_requests=2000)
    assert max(r.input_tokens + r.output_tokens for r in requests) <= 256
    assert all(r.input_tokens >= 1 and r.output_tokens >= 1 for r in requests)


def test_arrivals_follow_the_rate() -> None:
    requests = generate(num_requests=4000, request_rate=50.0)
    assert all(left.arrival <= right.arrival for left, right in pairwise(requests))
    assert requests[-1].arrival == pytest.approx(80, rel=0.1)
    assert {r.arrival for r in generate(num_requests=10)} == {0.0}


def test_tenants_and_priorities_have_their_shares() -> None:
    requests = generate(num_requests=4000, tenants="a=1,b=3", high_priority=0.2)
    assert Counter(r.tenant for r in requests)["a"] == pytest.approx(1000, rel=0.1)
    assert Counter(r.priority for r in requests)[HIGH_PRIORITY] == pytest.approx(800, rel=0.1)


def test_groups_share_prefixes_of_their_length() -> None:
    requests = generate(num_requests=100, prefix_groups=3, prefix_tokens=40)
    heads = {r.prompt()[:40] for r in requests}
    assert len(heads) == 3
    assert all(r.input_tokens > 40 for r in requests)


def test_long_prompts_come_at_their_times() -> None:
    requests = generate(65536, num_requests=500, request_rate=50.0, long_prompt_every=2.0)
    long = [r for r in requests if r.input_tokens == 32768]
    assert [r.arrival for r in long] == [2.0, 4.0, 6.0, 8.0]
    assert len(requests) == 504
    assert sorted(r.number for r in requests) == list(range(504))
    assert all(left.arrival <= right.arrival for left, right in pairwise(requests))


@pytest.mark.parametrize(
    "asked",
    [
        {"input_tokens": "100:2048"},
        {"request_rate": 1.0, "long_prompt_every": 1.0},
        {"prefix_groups": 1, "prefix_tokens": 2047},
    ],
)
def test_prompts_beyond_the_context_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the context holds 2048"):
        generate(**asked)
