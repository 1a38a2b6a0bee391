"""The server's routing over simulated arrivals: in turn, by load, by prefix."""

from collections import Counter

from quire.simulation.cluster import share_out
from quire.simulation.router import Router
from quire.simulation.workload import SimulatedRequest


def test_in_turn() -> None:
    router = Router("round-robin", 3, 1000.0)
    assert [router.assign(SimulatedRequest(n, 0.0, 10, 10)) for n in range(6)] == [0, 1, 2, 0, 1, 2]


def test_least_loaded_evens_out_long_and_short() -> None:
    requests = [SimulatedRequest(n, 0.0, 4000 if n % 4 == 0 else 10, 10) for n in range(400)]
    tokens = [sum(r.input_tokens for r in share) for share in share_out(requests, Router("least-loaded", 4, 1e3), 4)]
    assert max(tokens) < 1.2 * min(tokens)
    in_turn = [sum(r.input_tokens for r in share) for share in share_out(requests, Router("round-robin", 4, 1e3), 4)]
    assert max(in_turn) > 50 * min(in_turn)


def test_load_drains() -> None:
    router = Router("least-loaded", 2, 1000.0)
    assert router.assign(SimulatedRequest(0, 0.0, 100_000, 1)) == 0
    assert [router.assign(SimulatedRequest(n, 1.0, 10, 1)) for n in range(3)] == [1, 1, 1]
    later = Counter(router.assign(SimulatedRequest(n, 1000.0, 10, 1)) for n in range(10))
    assert later == {0: 5, 1: 5}


def test_the_same_prefix_goes_to_the_same_replica_until_it_is_swamped() -> None:
    router = Router("prefix", 8, 1000.0)

    def assign(number: int, hash_id: int, arrival: float) -> int:
        return router.assign(SimulatedRequest(number, arrival, 600, 10, hash_ids=(hash_id,)))

    spread = [assign(hash_id, hash_id, 0.0) for hash_id in range(64)]
    assert set(Counter(spread).values()) == {8}
    assert [assign(100 + hash_id, hash_id, 1000.0 + 10 * hash_id) for hash_id in range(64)] == spread
    flood = Counter(assign(200 + number, 3, 5000.0) for number in range(400))
    assert len(flood) == 8
    assert flood.most_common(1)[0][0] == spread[3]


def test_everyone_gets_their_own_in_order() -> None:
    requests = [SimulatedRequest(n, n * 0.1, 10, 10) for n in range(50)]
    shares = share_out(requests, Router("least-loaded", 3, 100.0), 3)
    assert sorted(r.number for share in shares for r in share) == list(range(50))
    assert all(share == sorted(share, key=lambda r: r.arrival) for share in shares)
