"""Limits that hold over several fronts: real processes, one table."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.core.errors import ConfigError, Overloaded
from quire.server.gate import usage_table
from quire.server.gate.account import Account, Limits
from quire.server.gate.usage_table import UsageTable

ALL = Limits(requests_per_minute=60, tokens_per_minute=600, concurrency=3)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fronts(tmp_path: Path) -> Iterator[list[UsageTable]]:
    tables = [UsageTable.create(tmp_path / "usage"), UsageTable(tmp_path / "usage", 1)]
    yield tables
    for table in tables:
        table.close()


def accounts(fronts: list[UsageTable], limits: Limits, tenant: str = "alice") -> tuple[Clock, list[Account]]:
    clock = Clock()
    return clock, [Account(limits, clock=clock, shared=front.of(tenant)) for front in fronts]


def test_requests_count_on_every_front(fronts: list[UsageTable]) -> None:
    clock, (one, other) = accounts(fronts, Limits(requests_per_minute=3))
    for account in (one, other, one):
        with account.request():
            pass
    for account in (one, other):
        with pytest.raises(Overloaded, match="3 requests a minute and has 0 left"):
            account.enter()
        assert account.quotas()["requests"].remaining == 0
    clock.now += 20
    with other.request():
        pass
    with pytest.raises(Overloaded):
        one.enter()


def test_tokens_and_debts_are_one(fronts: list[UsageTable]) -> None:
    clock, (one, other) = accounts(fronts, Limits(tokens_per_minute=60))
    one.charge(90)
    with pytest.raises(Overloaded, match="tokens"):
        other.enter()
    clock.now += 31
    other.enter()
    other.leave()
    assert one.quotas()["tokens"].remaining == 1


def test_concurrency_is_of_all_fronts_until_one_dies(fronts: list[UsageTable]) -> None:
    _, (one, other) = accounts(fronts, Limits(concurrency=2))
    one.enter()
    other.enter()
    for account in (one, other):
        with pytest.raises(Overloaded, match="has 2 requests running and may have 2"):
            account.enter()
    fronts[0].clear(1)  # the hub: the other front is gone
    one.enter()
    with pytest.raises(Overloaded, match="2 requests running"):
        one.enter()


def test_tenants_have_records_of_their_own(fronts: list[UsageTable]) -> None:
    _, alices = accounts(fronts, Limits(requests_per_minute=1))
    _, bobs = accounts(fronts[::-1], Limits(requests_per_minute=1), "bob")
    alices[0].enter()
    bobs[0].enter()
    for account in (*alices, *bobs):
        with pytest.raises(Overloaded):
            account.enter()


def test_other_limits_keep_what_was_used(fronts: list[UsageTable]) -> None:
    _, (one, other) = accounts(fronts, Limits(requests_per_minute=10))
    for _ in range(4):
        with one.request():
            pass
    other.change(Limits(requests_per_minute=5))
    assert other.quotas()["requests"].remaining == 1


def test_a_full_table_says_what_to_do(fronts: list[UsageTable], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_table, "MOST_TENANTS", 2)
    for tenant in ("a", "b"):
        fronts[0].place(tenant)
    assert fronts[1].place("b") == fronts[0].place("b")
    with pytest.raises(ConfigError, match="--api-server-count 1"):
        fronts[1].place("c")


def _spend(path: Path, number: int, attempts: int, let_in: "multiprocessing.Queue[int]") -> None:
    # a clock that stands still: nothing is refilled, however long the processes take
    account = Account(ALL, clock=lambda: 1000.0, shared=UsageTable(path, number).of("alice"))
    entered = 0
    for _ in range(attempts):
        try:
            with account.request():
                entered += 1
                account.charge(1)
        except Overloaded:
            pass
    let_in.put(entered)


def test_processes_that_race_get_no_more_than_the_limit(tmp_path: Path) -> None:
    UsageTable.create(tmp_path / "usage").close()
    spawn = multiprocessing.get_context("spawn")
    let_in = spawn.Queue()
    processes = [spawn.Process(target=_spend, args=(tmp_path / "usage", n, 500, let_in)) for n in range(4)]
    for process in processes:
        process.start()
    entered = sum(let_in.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    assert entered == ALL.requests_per_minute
