"""The last ten seconds, on a clock of the test's own."""

import pytest

from quire.observe.rates import WINDOW, Rates


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock) -> Rates:
    return Rates(clock)


def test_nothing_yet(rates: Rates) -> None:
    snapshot = rates.snapshot()
    assert snapshot["generation_tokens_per_second"] == 0
    assert snapshot["ttft_seconds"] == {"p50": None, "p95": None}
    assert snapshot["error_share"] == 0


def test_a_steady_stream_has_its_rate(rates: Rates, clock: Clock) -> None:
    for _ in range(600):
        clock.now += 0.05
        rates.tokens(0.05, 3)
    snapshot = rates.snapshot()
    assert snapshot["generation_tokens_per_second"] == pytest.approx(60, rel=0.02)
    assert snapshot["window_seconds"] <= WINDOW


def test_the_past_is_forgotten(rates: Rates, clock: Clock) -> None:
    rates.first_token(0.5, 1000, 1)
    rates.finished(failed=True)
    rates.refused()
    clock.now += 5
    assert rates.snapshot()["prompt_tokens_per_second"] == 200
    clock.now += WINDOW
    snapshot = rates.snapshot()
    assert snapshot["prompt_tokens_per_second"] == snapshot["errors_per_second"] == snapshot["refused_per_second"] == 0
    assert snapshot["ttft_seconds"]["p95"] is None


def test_a_ring_that_comes_round_starts_its_seconds_anew(rates: Rates, clock: Clock) -> None:
    rates.tokens(None, 7)
    clock.now += WINDOW  # the same place in the ring
    rates.tokens(None, 1)
    assert rates.snapshot()["generation_tokens_per_second"] == pytest.approx(1 / (WINDOW - 1))


def test_a_start_is_not_diluted_by_the_time_before_it(rates: Rates, clock: Clock) -> None:
    clock.now += 2
    rates.tokens(None, 10)
    assert rates.snapshot()["generation_tokens_per_second"] == 5


def test_quantiles_are_near(rates: Rates) -> None:
    for milliseconds in range(1, 1001):
        rates.first_token(milliseconds / 1e3, 0, 1)
        rates.tokens(milliseconds / 1e4, 1)
    snapshot = rates.snapshot()
    assert snapshot["ttft_seconds"]["p50"] == pytest.approx(0.5, rel=0.05)
    assert snapshot["ttft_seconds"]["p95"] == pytest.approx(0.95, rel=0.05)
    assert snapshot["itl_seconds"]["p50"] == pytest.approx(0.05, rel=0.05)


def test_what_is_off_the_scale_is_its_end(rates: Rates) -> None:
    rates.first_token(1e9, 0, 1)
    assert rates.snapshot()["ttft_seconds"]["p50"] == pytest.approx(1000, rel=0.1)


def test_share_of_errors(rates: Rates) -> None:
    for number in range(8):
        rates.finished(failed=number < 2)
    snapshot = rates.snapshot()
    assert (snapshot["error_share"], snapshot["requests_per_second"], snapshot["errors_per_second"]) == (0.25, 8, 2)
