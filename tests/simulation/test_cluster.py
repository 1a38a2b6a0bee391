"""Clusters: the same metrics wherever replicas are simulated, and errors that come home."""

from dataclasses import replace

import msgspec
import pytest

from quire.config.resolve import resolve
from quire.core.errors import QuireError
from quire.simulation.cluster import WorkerProcess, simulate
from quire.simulation.cost import ModelWork
from quire.simulation.frames import Job
from quire.simulation.metrics import total_of
from quire.simulation.replica import ReplicaSetup
from tests.config.examples import H100, TINY, asked, with_windows
from tests.simulation.setups import make_requests, make_setup


def test_processes_and_this_one_agree() -> None:
    setups = [make_setup(policy="fcfs"), make_setup(policy="sjf")]
    shares = [make_requests(20, every=0.001), make_requests(30, prompt=30), []]
    told: list[int] = []
    here = simulate(setups, shares, num_processes=1)
    there = simulate(setups, shares, num_processes=2, progress=told.append)
    assert here == there
    assert [len(parts) for parts in there] == [3, 3]
    assert sum(told) == 100


def test_metrics_add_up() -> None:
    parts = simulate([make_setup()], [make_requests(20, tenant="a"), make_requests(30, tenant="b")], num_processes=1)[0]
    total = total_of(parts)
    assert total.replicas == 2
    assert total.output_tokens == sum(part.output_tokens for part in parts)
    assert total.end == max(part.end for part in parts)
    assert {name: tenant.ended for name, tenant in total.tenants.items()} == {"a": 20, "b": 30}
    assert total.itl.count == sum(part.itl.count for part in parts)
    assert total.reasons == {"stop": 50}


def test_a_process_says_why_it_cannot() -> None:
    setup = make_setup()
    unknown = msgspec.structs.replace(setup, resolved=replace(setup.resolved, policy="no-such"))
    worker = WorkerProcess()
    try:
        with pytest.raises(QuireError, match="unknown scheduling policy 'no-such'"):
            worker.run(Job(unknown, make_requests(1)), lambda _: None)
        assert worker.run(Job(setup, make_requests(2)), lambda _: None).reasons == {"stop": 2}
    finally:
        worker.stop()


def test_a_lost_process_is_an_error_and_no_wait() -> None:
    worker = WorkerProcess()
    worker._process.kill()
    worker._process.wait()
    with pytest.raises(QuireError, match="ended with exit code -9"):
        worker.run(Job(make_setup(), make_requests(1)), lambda _: None)
    worker.stop()


def test_an_error_in_one_replica_ends_them_all() -> None:
    setup = make_setup()
    unknown = msgspec.structs.replace(setup, resolved=replace(setup.resolved, policy="no-such"))
    with pytest.raises(QuireError, match="no-such"):
        simulate([unknown, setup], [make_requests(500, output=30)] * 4, num_processes=2)


def test_what_a_model_resolves_to_travels_whole() -> None:
    model = with_windows(TINY, (8, None, 8, None))
    resolved = resolve(asked(), model, H100)
    assert len(resolved.kv.groups) == 2
    job = Job(ReplicaSetup(resolved, ModelWork.of(model), H100), make_requests(3))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job) == job
