"""A server of its own for everything that is thrown at it, and the proof that nothing came of it."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from tests.server.live import LiveServer, running_server

BYSTANDER = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="session")
def fuzzed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("fuzz")) as server:
        yield server


@pytest.fixture(autouse=True, scope="module")
def _unharmed(fuzzed_server: LiveServer) -> Iterator[None]:
    """The engine that was there is there, was never replaced, has lost no block, and answers as before."""
    before, answer = _engines(fuzzed_server), complete(fuzzed_server)
    yield
    assert _engines(fuzzed_server) == before
    assert complete(fuzzed_server) == answer


def _engines(server: LiveServer) -> list[tuple[int, int]]:
    return [(engine["pid"], engine["restarts"]) for engine in server.get("/stats")["engines"]]


def complete(server: LiveServer) -> str:
    """What the bystander is told."""
    answer = httpx.post(f"{server.url}/v1/completions", json=BYSTANDER, timeout=120)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


@dataclass
class Bystander:
    """Someone who asks the same thing over and over while others misbehave."""

    server: LiveServer
    seconds: list[float] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)
    failures: list[BaseException] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                began = time.monotonic()
                self.answers.add(complete(self.server))
                self.seconds.append(time.monotonic() - began)
        except BaseException as error:
            self.failures.append(error)


@pytest.fixture
def bystander(fuzzed_server: LiveServer) -> Iterator[Bystander]:
    """Asks from before the test until after it; every answer must be the same one, and none may fail."""
    someone, stop = Bystander(fuzzed_server), threading.Event()
    expected = complete(fuzzed_server)
    thread = threading.Thread(target=someone.run, args=(stop,))
    thread.start()
    yield someone
    stop.set()
    thread.join()
    assert someone.failures == []
    assert someone.answers <= {expected}
    if someone.seconds:
        ordered = sorted(someone.seconds)
        middle, worst = ordered[len(ordered) // 2], ordered[-1]
        print(f"bystander: {len(ordered)} answers, median {middle * 1000:.0f} ms, slowest {worst * 1000:.0f} ms")
