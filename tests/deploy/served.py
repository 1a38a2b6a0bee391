"""quire's application on a real Ray Serve of this machine."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.deploy.replay import ROOT
from tests.router.instances import free_port

PACKAGE = ROOT / "deploy" / "ray_serve"
_ENOUGH = 16
"""CPUs that Ray reckons with, one for a replica; this machine may have fewer."""
_STORE = 80 * 2**20
_LONGEST = 180.0


def until(happens: Callable[[], Any], seconds: float = _LONGEST) -> Any:
    """What it says once that is anything."""
    end = time.monotonic() + seconds
    while not (said := happens()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)
    return said


@contextmanager
def ray_serve(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of its own with Serve's proxy; yields the proxy's address."""
    import ray
    from ray import serve

    patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(PACKAGE))))
    patch.setenv("OMP_NUM_THREADS", "1")
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S", "1")
    port = free_port()
    ray.init(
        num_cpus=_ENOUGH,
        object_store_memory=_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


@contextmanager
def application(args: dict[str, Any], prefix: str = "/") -> Iterator[None]:
    """One that takes work."""
    from quire_ray.app import build
    from ray import serve

    serve.run(build(args), name="quire", route_prefix=prefix)
    try:
        yield
    finally:
        serve.delete("quire")


def replicas(deployment: str) -> list[psutil.Process]:
    """The processes of a deployment's replicas."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] == [f"ray::ServeReplica:quire:{deployment}"]:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def members(url: str, headers: dict[str, str] | None = None, state: str = "ready") -> list[dict[str, Any]]:
    """Servers that a gateway knows, of one state: those that take work."""
    cards: list[dict[str, Any]] = json.loads(httpx.get(url + "/stats", headers=headers, timeout=30).text)["members"]
    return [card for card in cards if card["state"] == state]


def holder(url: str) -> int:
    """The process that listens at an address."""
    port = int(url.rpartition(":")[2])
    for process in replicas("Server"):
        if any(each.laddr.port == port and each.status == psutil.CONN_LISTEN for each in process.net_connections()):
            return int(process.pid)
    raise AssertionError(f"nobody listens at {url}")
