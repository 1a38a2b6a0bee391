"""Which adapters are on the device: pages are never shared or lost, and nobody waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from quire.scheduler.adapter_room import MOST_PASSES, AdapterRoom, AdapterUse

PAGES = {"a": 1, "b": 2, "c": 3, "d": 1}


def settled(room: AdapterRoom) -> list[str]:
    """Grant what can be granted, and have it loaded at once."""
    loads = room.grant()
    for load in loads:
        room.loaded(load.key)
    return [load.key for load in loads]


def test_an_adapter_is_loaded_once_for_all_its_requests() -> None:
    room = AdapterRoom(4, 2)
    room.ask("r1", "a", 1)
    room.ask("r2", "a", 1)
    assert settled(room) == ["a"]
    room.ask("r3", "a", 1)
    assert settled(room) == []
    assert all(map(room.is_granted, ("r1", "r2", "r3")))
    assert (room.stats.loads, room.stats.hits) == (1, 1)


def test_uses_are_told_in_the_order_in_which_adapters_stay_and_come() -> None:
    room = AdapterRoom(3, 2)
    for request, key in (("r1", "a"), ("r2", "b"), ("r3", "b")):
        room.ask(request, key, PAGES[key])
    settled(room)
    room.leave("r1")
    assert room.uses() == [AdapterUse("b", True, 2, 0), AdapterUse("a", True, 0, 0)]
    for request, key in (("r4", "c"), ("r5", "d"), ("r6", "b")):
        room.ask(request, key, PAGES[key])
    assert settled(room) == []
    assert room.uses() == [
        AdapterUse("b", True, 3, 0),
        AdapterUse("a", True, 0, 0),
        AdapterUse("c", False, 0, 1),
        AdapterUse("d", False, 0, 1),
    ]


def test_an_adapter_on_the_device_may_wait_until_others_are_out_of_use() -> None:
    room = AdapterRoom(4, 1)
    for request, key in (("r1", "a"), ("r2", "d")):
        room.ask(request, key, PAGES[key])
        settled(room)
        room.leave(request)
    room.ask("r3", "a", PAGES["a"])
    room.ask("r4", "d", PAGES["d"])
    assert settled(room) == []
    assert set(room.uses()) == {AdapterUse("a", True, 1, 0), AdapterUse("d", True, 0, 1)}


def test_a_request_waits_until_its_adapter_is_there() -> None:
    room = AdapterRoom(4, 2)
    room.ask("r1", "a", 1)
    [load] = room.grant()
    assert not room.is_granted("r1")
    room.loaded(load.key)
    assert room.is_granted("r1")


def test_the_one_not_used_for_longest_makes_way_and_never_one_in_use() -> None:
    room = AdapterRoom(3, 3)
    for name in ("a", "b"):
        room.ask(name, name, PAGES[name])
    settled(room)
    room.ask("r", "c", 3)
    assert settled(room) == []  # both are in use
    room.leave("a")
    assert settled(room) == []  # and b still has two pages
    room.leave("b")
    assert settled(room) == ["c"]
    assert room.stats.evictions == 2


def test_no_more_are_used_at_once_than_a_step_may_have() -> None:
    room = AdapterRoom(8, 2)
    for name in ("a", "b", "d"):
        room.ask(name, name, PAGES[name])
    assert settled(room) == ["a", "b"]
    room.leave("a")
    assert settled(room) == ["d"]
    assert room.find("a") is not None, "there was room for it to stay"


def test_requests_of_adapters_that_are_there_pass_but_not_for_ever() -> None:
    room = AdapterRoom(1, 1)
    room.ask("first", "a", 1)
    settled(room)
    room.ask("patient", "d", 1)
    for number in range(MOST_PASSES):
        room.ask(f"r{number}", "a", 1)
        assert room.is_granted(f"r{number}")
    room.ask("late", "a", 1)
    assert not room.is_granted("late")
    for request in ("first", *(f"r{number}" for number in range(MOST_PASSES))):
        room.leave(request)
    assert settled(room) == ["d"]
    room.leave("patient")
    assert settled(room) == ["a"]
    assert room.is_granted("late")


def test_one_that_leaves_while_it_waits_is_forgotten() -> None:
    room = AdapterRoom(1, 1)
    room.ask("a", "a", 1)
    settled(room)
    room.ask("b", "d", 1)
    room.leave("b")
    room.leave("a")
    assert settled(room) == []
    assert room.num_waiting == 0


def test_a_load_that_failed_leaves_no_trace() -> None:
    room = AdapterRoom(1, 1)
    room.ask("a", "a", 1)
    [load] = room.grant()
    room.failed(load.key)
    room.leave("a")
    room.ask("b", "d", 1)
    assert settled(room) == ["d"]


@given(st.lists(st.tuples(st.sampled_from(sorted(PAGES)), st.booleans()), max_size=60), st.integers(1, 3))
def test_pages_are_never_shared_and_everybody_gets_a_turn(moves: list[tuple[str, bool]], most: int) -> None:
    room, live = AdapterRoom(3, most), list[str]()
    for number, (key, leaves) in enumerate(moves):
        if leaves and live:
            room.leave(live.pop(0))
        else:
            live.append(f"r{number}")
            room.ask(f"r{number}", key, PAGES[key])
        settled(room)
        residents = [room.find(name) for name in PAGES]
        pages = [page for each in residents if each is not None for page in each.pages]
        assert len(pages) == len(set(pages)) <= 3
        assert sum(1 for each in residents if each is not None and each.users) <= most
    while live:
        done = next((request for request in live if room.is_granted(request)), None)
        assert done is not None, "somebody must be able to run"
        live.remove(done)
        room.leave(done)
        settled(room)
