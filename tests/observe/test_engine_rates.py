"""What engines' counts grew by in the last ten seconds, whoever is replaced meanwhile."""

import pytest

from quire.core.stats import EngineStats
from quire.observe.metrics import Metrics
from quire.observe.rates import WINDOW
from tests.observe.test_rates import Clock


def stats(step: int, drafts: int, adapters: int = 0) -> EngineStats:
    """Of every draft's four tokens three are right; of every five requests for adapters one has its loaded."""
    return EngineStats(
        step=step,
        draft_method="ngram",
        total_drafts=drafts,
        total_draft_tokens=4 * drafts,
        total_accepted_tokens=3 * drafts,
        total_adapter_hits=4 * adapters,
        total_adapter_loads=adapters,
    )


def told(metrics: Metrics) -> dict[str, float | None]:
    found: dict[str, float | None] = metrics.snapshot()["engines"]
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics("m", 2, clock=clock)


def test_nothing_was_drafted(metrics: Metrics) -> None:
    metrics.engine(0, EngineStats(step=1))
    metrics.engine(0, EngineStats(step=2))
    found = told(metrics)
    assert (found["drafts_per_second"], found["accepted_share"], found["mean_accepted_length"]) == (0, None, None)


def test_a_steady_stream_has_its_rates(metrics: Metrics, clock: Clock) -> None:
    for step in range(1, 601):
        clock.now += 0.05
        for replica in (0, 1):
            metrics.engine(replica, stats(step, step, step))
    found = told(metrics)
    assert found["drafts_per_second"] == pytest.approx(40, rel=0.02)
    assert found["draft_tokens_per_second"] == pytest.approx(160, rel=0.02)
    assert found["accepted_tokens_per_second"] == pytest.approx(120, rel=0.02)
    assert (found["accepted_share"], found["mean_accepted_length"]) == (0.75, 3.0)
    assert found["adapter_hits_per_second"] == pytest.approx(160, rel=0.02)
    assert found["adapter_loads_per_second"] == pytest.approx(40, rel=0.02)


def test_the_past_is_forgotten_and_a_ring_that_comes_round_begins_anew(metrics: Metrics, clock: Clock) -> None:
    metrics.engine(0, stats(1, 0))
    metrics.engine(0, stats(2, 70))
    clock.now += 5
    assert told(metrics)["drafts_per_second"] == 70 / 5
    clock.now += WINDOW - 5  # the same place in the ring
    metrics.engine(0, stats(3, 79))
    assert told(metrics)["drafts_per_second"] == pytest.approx(9 / (WINDOW - 1))
    clock.now += WINDOW
    assert told(metrics)["mean_accepted_length"] is None


def test_what_an_engine_had_counted_before_is_no_news(metrics: Metrics) -> None:
    metrics.engine(0, stats(900, 5_000))
    assert told(metrics)["drafts_per_second"] == 0
    metrics.engine(0, stats(901, 5_003))
    assert told(metrics)["drafts_per_second"] == 3


def test_a_replacement_counts_from_nothing(metrics: Metrics) -> None:
    metrics.engine(0, stats(1, 0))
    metrics.engine(0, stats(2, 10))
    metrics.engine_lost(0, "killed")
    metrics.engine(0, stats(1, 0))
    metrics.engine(0, stats(2, 4))
    assert told(metrics)["drafts_per_second"] == 14
    metrics.engine(0, stats(1, 2))  # another process, whose predecessor's end nobody heard of
    assert told(metrics)["drafts_per_second"] == 16
