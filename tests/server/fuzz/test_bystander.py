"""How long a bystander waits while others send hostile bodies, beside how long it waits in peace."""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import httpx
import pytest

from tests.server.fuzz.conftest import Bystander
from tests.server.fuzz.test_hostile_bodies import JSON, RAW
from tests.server.live import LiveServer

ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/tokenize",
    "/v1/embeddings",
    "/v1/rerank",
)
LONG = b'{"prompt": "' + b"x" * (10 << 20) + b'", "messages": [], "input": "y"}'


def watched(server: LiveServer, seconds: float) -> list[float]:
    """A bystander's waiting times over `seconds`."""
    bystander, stop = Bystander(server), threading.Event()
    thread = threading.Thread(target=bystander.run, args=(stop,))
    thread.start()
    time.sleep(seconds)
    stop.set()
    thread.join()
    assert not bystander.failures
    assert len(bystander.answers) == 1
    return bystander.seconds


@pytest.mark.parametrize("seconds", [3.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_a_bystander_is_not_harmed(fuzzed_server: LiveServer, seconds: float) -> None:
    alone = watched(fuzzed_server, seconds)
    over, statuses = threading.Event(), []

    def attack(start: int) -> None:
        bodies = [*RAW.values(), LONG]
        with httpx.Client(base_url=fuzzed_server.url, timeout=60) as client:
            for place in islice(cycle(range(len(bodies))), start, None):
                if over.is_set():
                    return
                route = ROUTES[place % len(ROUTES)]
                try:
                    statuses.append(client.post(route, content=bodies[place], headers=JSON).status_code)
                except httpx.TransportError:  # it was cut off in the middle of a body that is too large
                    statuses.append(0)

    with ThreadPoolExecutor(2) as attackers:
        for start in (0, 7):
            attackers.submit(attack, start)
        beside = watched(fuzzed_server, seconds)
        over.set()
    assert statuses
    assert not [status for status in statuses if status >= 500]
    print(
        f"\na bystander waits {statistics.median(alone):.2f} s (longest {max(alone):.2f}) in peace, "
        f"{statistics.median(beside):.2f} s (longest {max(beside):.2f}) beside {len(statuses)} hostile bodies"
    )
