"""What a key may use: refilled evenly, overdrawn once, and never forgotten when limits change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import Overloaded
from quire.server.gate.account import Account, Limits
from quire.server.gate.bucket import Bucket


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_without_limits_everything_goes() -> None:
    account = Account()
    for _ in range(1000):
        account.enter()
    account.check_tokens(10**12)
    account.charge(10**12)
    account.enter()
    assert account.running == 1001
    assert account.quotas() == {}


def test_requests_a_minute(clock: Clock) -> None:
    account = Account(Limits(requests_per_minute=6), clock=clock)
    for _ in range(6):
        account.enter()
        account.leave()
    with pytest.raises(Overloaded, match="6 requests a minute") as caught:
        account.enter()
    assert caught.value.retry_after == pytest.approx(10.0)
    assert account.running == 0
    clock.now += caught.value.retry_after
    account.enter()
    with pytest.raises(Overloaded):
        account.enter()


def test_concurrency_and_a_refused_request_counts_for_nothing(clock: Clock) -> None:
    account = Account(Limits(requests_per_minute=10, concurrency=2), clock=clock)
    account.enter()
    account.enter()
    for _ in range(20):
        with pytest.raises(Overloaded, match="may have 2 at once") as caught:
            account.enter()
        assert caught.value.retry_after > 0
    assert account.quotas()["requests"].remaining == 8
    account.leave()
    account.enter()
    assert account.running == 2


def test_leaving_happens_whatever_happens(clock: Clock) -> None:
    account = Account(Limits(concurrency=1), clock=clock)

    def fail() -> None:
        with account.request():
            raise KeyError

    for _ in range(3):
        with pytest.raises(KeyError):
            fail()
    assert account.running == 0
    with account.request(), pytest.raises(Overloaded), account.request():
        pass
    assert account.running == 0


def test_leaving_without_entering_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        Account().leave()


def test_tokens_are_charged_afterwards_and_debt_is_waited_for(clock: Clock) -> None:
    account = Account(Limits(tokens_per_minute=600), clock=clock)
    account.check_tokens(500)
    account.enter()
    account.charge(900)
    account.leave()
    assert account.quotas()["tokens"].remaining == 0
    with pytest.raises(Overloaded, match="600 tokens a minute") as caught:
        account.enter()
    assert caught.value.retry_after == pytest.approx(30.1)
    clock.now += 31
    account.enter()
    with pytest.raises(Overloaded):
        account.check_tokens(500)
    account.check_tokens(9)


def test_more_than_a_minute_has_waits_for_a_whole_one_and_then_goes(clock: Clock) -> None:
    account = Account(Limits(tokens_per_minute=100), clock=clock)
    account.check_tokens(5000)
    account.charge(50)
    with pytest.raises(Overloaded) as caught:
        account.check_tokens(5000)
    assert caught.value.retry_after == pytest.approx(30.0)


def test_a_minute_is_all_that_is_saved_up(clock: Clock) -> None:
    account = Account(Limits(requests_per_minute=3), clock=clock)
    clock.now += 3600
    assert account.quotas()["requests"].remaining == 3


def test_other_limits_keep_what_was_used(clock: Clock) -> None:
    account = Account(Limits(requests_per_minute=10, tokens_per_minute=100, concurrency=1), clock=clock)
    account.enter()
    account.charge(90)
    account.change(Limits(requests_per_minute=20, tokens_per_minute=50, concurrency=3))
    quotas = account.quotas()
    assert (quotas["requests"].limit, quotas["requests"].remaining) == (20, 19)
    assert (quotas["tokens"].limit, quotas["tokens"].remaining) == (50, 0)
    assert account.running == 1
    account.change(Limits())
    account.enter()
    assert account.quotas() == {}
    account.leave()
    account.leave()


@given(
    per_minute=st.integers(1, 1000),
    steps=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 500)), max_size=30),
)
def test_a_bucket_gives_no_more_than_its_rate_and_one_minute(per_minute: int, steps: list[tuple[float, float]]) -> None:
    bucket, now, taken = Bucket(per_minute, 0.0), 0.0, 0.0
    for passed, wanted in steps:
        now += passed
        if bucket.wait_for(wanted, now) == 0 and wanted <= per_minute:
            bucket.take(wanted, now)
            taken += wanted
    assert taken <= per_minute + now * per_minute / 60 + 1e-6


@given(per_minute=st.integers(1, 1000), taken=st.floats(0, 5000), wanted=st.floats(0.001, 5000))
def test_whoever_waits_as_told_is_let_in(per_minute: int, taken: float, wanted: float) -> None:
    bucket = Bucket(per_minute, 0.0)
    bucket.take(taken, 0.0)
    wait = bucket.wait_for(wanted, 0.0)
    assert bucket.wait_for(wanted, wait) == pytest.approx(0.0, abs=1e-6)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(60, 100.0)
    bucket.take(60, 100.0)
    assert bucket.level(50.0) == 0
    assert bucket.level(100.0) == 0
    assert bucket.level(101.0) == pytest.approx(1.0)
