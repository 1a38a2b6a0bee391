"""Where a start's time goes."""

from quire.observe.start_clock import StartClock, parts_table


def test_parts_follow_each_other_and_add_up(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr("quire.observe.start_clock.time.monotonic", lambda: now[0])
    clock = StartClock(began=98.0)
    clock.done("importing")
    now[0] = 103.5
    clock.done("weights")
    clock.beside("tokenizer, meanwhile", 1.5)
    assert clock.parts == [("importing", 2.0), ("weights", 3.5), ("tokenizer, meanwhile", 1.5)]
    assert clock.total == 5.5


def test_what_ran_at_the_same_time_stands_side_by_side() -> None:
    table = parts_table({"server": [("routes", 0.2)], "engine": [("importing torch", 1.75), ("weights", 12.0)]})
    assert table.splitlines() == [
        "  server               engine",
        "     0.20 s  routes       1.75 s  importing torch",
        "                         12.00 s  weights",
    ]
