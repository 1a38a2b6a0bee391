"""Routers: in turn, by load, by prefix."""

from collections import Counter

from quire.simulation.cluster import share_out
from quire.simulation.router import Router
from quire.simulation.workload import SimulatedRequest


def test_in_turn() -> None:
    router = Router("round-robin", 3, 1000.0)
    assert [router.assign(SimulatedRequest(n, 0.0, 10, 10)) for n in range(6)] == [0, 1, 2, 0, 1, 2]


def test_least_tokens_evens_out_long_and_short() -> None:
    requests = [SimulatedRequest(n, 0.0, 4000 if n % 4 == 0 else 10, 10) for n in range(400)]
    tokens = [sum(r.input_tokens for r in share) for share in share_out(requests, Router("least-tokens", 4, 1e3), 4)]
    assert max(tokens) < 1.2 * min(tokens)
    in_turn = [sum(r.input_tokens for r in share) for share in share_out(requests, Router("round-robin", 4, 1e3), 4)]
    assert max(in_turn) > 50 * min(in_turn)


def test_load_drains() -> None:
    router = Router("least-tokens", 2, 1000.0)
    assert router.assign(SimulatedRequest(0, 0.0, 100_000, 1)) == 0
    assert [router.assign(SimulatedRequest(n, 1.0, 10, 1)) for n in range(3)] == [1, 1, 1]
    later = Counter(router.assign(SimulatedRequest(n, 1000.0 + n, 10, 1)) for n in range(10))
    assert set(later) == {0, 1}


def test_same_prefix_goes_to_the_same_replica_until_it_is_swamped() -> None:
    router = Router("prefix", 8, 1e6)
    spread = {
        hash_id: router.assign(SimulatedRequest(hash_id, 0.0, 10, 10, hash_ids=(hash_id,))) for hash_id in range(64)
    }
    assert len(set(spread.values())) > 4
    again = {
        hash_id: router.assign(SimulatedRequest(hash_id, 0.0, 10, 10, hash_ids=(hash_id, 1))) for hash_id in spread
    }
    assert again == spread
    flood = Counter(router.assign(SimulatedRequest(n, 0.0, 10**5, 10, hash_ids=(3,))) for n in range(400))
    assert len(flood) == 8


def test_everyone_gets_their_own_in_order() -> None:
    requests = [SimulatedRequest(n, n * 0.1, 10, 10) for n in range(50)]
    shares = share_out(requests, Router("least-tokens", 3, 100.0), 3)
    assert sorted(r.number for share in shares for r in share) == list(range(50))
    assert all(share == sorted(share, key=lambda r: r.arrival) for share in shares)
