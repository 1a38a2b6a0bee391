"""Several fronts together tell what one front would have told that had seen it all, and the dead keep their counts."""

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from quire.core.stats import EngineStats
from quire.observe import catalog
from quire.observe.figures import FrontFigures, Samples, merged
from quire.observe.metrics import Metrics
from quire.observe.rates import WINDOW
from tests.observe.samples import busy_metrics, finished, read, read_text, value

Event = Callable[[Metrics], None]


class Clock:
    """One for all fronts, as processes of a host have."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def front(clock: Clock) -> Metrics:
    return Metrics("tiny", 2, ["/v1/completions", "/v1/models"], clock)


def sent(figures: FrontFigures) -> FrontFigures:
    """As another process reads it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(figures), type=FrontFigures)


def events(random: Random) -> list[Event]:
    """One of each kind; all numbers are sums of powers of two, so that the order of adding does not matter."""
    replica, quarter = random.randrange(2), random.randrange(1, 40) / 4
    route, refusal = random.choice(["/v1/models", "/secret"]), random.choice(["overloaded", "key"])
    record = finished(
        replica=replica,
        reason=random.choice(["stop", "length", "error"]),
        first_token=random.choice([None, 102.0]),
        finished=102 + quarter,
    )
    return [
        lambda metrics: metrics.first_token(replica, quarter, 30, 2),
        lambda metrics: metrics.tokens(replica, quarter, 4),
        lambda metrics: metrics.request_finished(record),
        lambda metrics: metrics.http(route, "GET", 200, quarter),
        lambda metrics: metrics.refused(refusal),
        lambda metrics: metrics.slow_reader_paused(),
        lambda metrics: metrics.slow_reader_dropped(),
    ]


def without_memory(samples: Samples) -> Samples:
    kept = {name: rows for name, rows in samples.numbers.items() if name != catalog.FRONT_MEMORY.name}
    return Samples(kept, samples.histograms)


@pytest.mark.parametrize("seed", range(5))
def test_fronts_together_are_one_front_that_saw_it_all(seed: int, clock: Clock) -> None:
    random = Random(seed)
    whole, fronts = front(clock), [front(clock) for _ in range(3)]
    for _ in range(40):
        clock.now += random.random()
        for event in events(random):
            event(whole)
            event(random.choice(fronts))
    whole.connections(9)
    for number, each in enumerate(fronts):
        each.connections(2 + number)
    together = merged(sent(each.figures()) for each in fronts)
    assert without_memory(together.samples) == without_memory(sent(whole.figures()).samples)
    assert fronts[0].snapshot(together) == whole.snapshot()
    assert together.totals() == whole.figures().totals()
    assert together.memory_bytes() > 2 * whole.figures().memory_bytes()


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_a_front_alone_is_rendered_from_its_picture(accept: str) -> None:
    metrics = busy_metrics()
    engines = msgspec.msgpack.decode(msgspec.msgpack.encode(metrics.engine_figures()), type=Samples)
    again, kind = Metrics("tiny", 1).render(accept, sent(metrics.figures()), engines)
    text, same_kind = metrics.render(accept)
    volatile = ("process_", "quire_front_memory")
    assert _lines(again, volatile) == _lines(text, volatile)
    assert kind == same_kind


def test_figures_of_a_process_are_told_only_where_it_alone_can_be_asked() -> None:
    metrics = Metrics("tiny", 1)
    assert "process_cpu_seconds_total" in metrics.render()[0].decode()
    metrics.fronts(2, 0)
    assert "process_" not in metrics.render()[0].decode()


def _lines(text: bytes, without: tuple[str, ...]) -> list[str]:
    return [line for line in text.decode().splitlines() if not line.startswith(without)]


def test_a_dead_front_leaves_its_counts_and_nothing_that_was_only_then() -> None:
    alive, dead = busy_metrics(), busy_metrics()
    together = merged([sent(dead.figures()).retired(), alive.figures()])
    samples = read_text(alive.render("", together)[0])
    assert samples["quire_http_connections", frozenset()] == 7
    assert samples["quire_front_memory_bytes", frozenset()] == pytest.approx(
        value(alive, "quire_front_memory_bytes"), rel=0.2
    )
    assert samples["quire_generation_tokens_total", frozenset({("engine", "0")})] == 4
    assert samples["quire_time_to_first_token_seconds_count", frozenset({("engine", "0")})] == 2
    assert together.totals() == {"requests": 2, "prompt_tokens": 60, "generation_tokens": 10, "errors": 0}
    rate = alive.snapshot(together)["generation_tokens_per_second"]
    assert rate == pytest.approx(alive.snapshot()["generation_tokens_per_second"], rel=0.01)


def test_the_retired_retire_again() -> None:
    one = busy_metrics().figures().retired()
    gone = merged([merged([one, one]).retired(), one])
    assert gone.totals()["requests"] == 3
    assert gone.retired() == gone


def test_nobody_is_nothing(clock: Clock) -> None:
    assert merged([]) == FrontFigures()
    assert merged([]).totals() == front(clock).figures().totals()
    assert busy_metrics().figures().retired().memory_bytes() == 0
    assert front(clock).snapshot(merged([]))["requests_per_second"] == 0


def test_labels_stay_bounded_over_all_fronts(clock: Clock) -> None:
    fronts = [front(clock) for _ in range(4)]
    for number, each in enumerate(fronts):
        for reason in range(50):
            each.refused(f"reason {number}/{reason}")
    rows = merged(each.figures() for each in fronts).samples.numbers[catalog.REFUSED.name]
    assert catalog.REFUSED.limit == 32
    assert len(rows) == 33
    assert sum(rows.values()) == 200


def test_a_picture_stays_as_it_was_taken(clock: Clock) -> None:
    metrics = front(clock)
    for event in events(Random(0)):
        event(metrics)
    picture = metrics.figures()
    before = msgspec.msgpack.encode(picture)
    for event in events(Random(0)):
        event(metrics)
    merged([picture, picture, metrics.figures()])
    assert msgspec.msgpack.encode(picture) == before


def test_what_is_empty_takes_no_room(clock: Clock) -> None:
    metrics = front(clock)
    idle = metrics.figures()
    assert idle.rates.seconds == []
    assert [each.counts for rows in idle.samples.histograms.values() for each in rows.values() if each.counts] == []
    metrics.tokens(0, 0.5, 1)
    clock.now += WINDOW
    assert metrics.figures().rates.seconds == []


def test_rates_are_of_seconds_not_of_fronts(clock: Clock) -> None:
    early = front(clock)
    clock.now += 4
    late = front(clock)
    early.tokens(0, 5.0, 10)
    late.tokens(0, 15.0, 30)
    clock.now += 1
    together = merged([early.figures(), late.figures()])
    assert [second.generation for second in together.rates.seconds] == [40]
    assert late.snapshot(together)["generation_tokens_per_second"] == 8
    assert late.snapshot(together)["itl_seconds"]["p50"] == pytest.approx(0.5, rel=0.12)


def test_a_new_front_shows_the_engines_of_old(clock: Clock) -> None:
    hub, replacement = Metrics("tiny", 1), Metrics("tiny", 1)
    hub.engine(0, EngineStats(step=5, total_prefix_tokens=100))
    hub.engine_lost(0, "died")
    hub.engine(0, EngineStats(step=2, total_prefix_tokens=7))
    replacement.engine(0, EngineStats(step=2, total_prefix_tokens=7))
    samples = read_text(replacement.render("", None, hub.engine_figures())[0])
    assert samples["quire_prefix_cache_queries_total", frozenset({("engine", "0")})] == 107
    assert samples["quire_engine_restarts_total", frozenset({("engine", "0"), ("reason", "died")})] == 1


def test_fronts_are_counted_where_someone_counts_them() -> None:
    alone, hub = Metrics("tiny", 1), Metrics("tiny", 1)
    hub.fronts(4, 2)
    assert not [name for name, _ in read(alone) if name.startswith("quire_fronts")]
    samples = read_text(alone.render("", None, hub.engine_figures())[0])
    assert samples["quire_fronts", frozenset()] == 4
    assert samples["quire_fronts_lost_total", frozenset()] == 2
