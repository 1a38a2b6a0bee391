"""Debian's Prometheus reads a running server, and its alerts notice an engine that is stopped."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from quire.observe import catalog
from tests.deploy.scraped import scraping
from tests.server.live import LiveServer, running_server

pytestmark = pytest.mark.slow
LONGEST_WAIT = 240.0


def wait_for(condition: Callable[[], bool], what: str) -> float:
    """Seconds until it held."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < LONGEST_WAIT, what
        time.sleep(0.5)
    return time.monotonic() - began


@contextmanager
def load(server: LiveServer, clients: int = 2) -> Iterator[list[str]]:
    """Clients that ask for one answer after the other; yields what they got."""
    ended, texts = threading.Event(), list[str]()

    def ask() -> None:
        body = {"prompt": "Once upon a time", "max_tokens": 64, "temperature": 0, "ignore_eos": True}
        with server.client() as client:
            while not ended.is_set():
                texts.append(client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]["text"])

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield texts
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_prometheus_reads_a_running_server_without_a_gap(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, scraping(tmp_path, [server.url]) as prometheus, load(server) as texts:
        wait_for(lambda: prometheus.value(f"sum({catalog.OUTPUT_TOKENS.name})") > 500, "tokens in Prometheus")
        time.sleep(20)  # what is measured: samples of twenty seconds
        assert prometheus.value("min_over_time(up[20s])") == 1
        assert prometheus.value("count_over_time(up[20s])") >= 19
        (series,) = prometheus.query(f"sum by (job) (rate({catalog.OUTPUT_TOKENS.name}[20s]))")
        assert series["metric"] == {"job": "quire"}
        assert float(series["value"][1]) > 0
        answered = prometheus.value(f'sum({catalog.HTTP_REQUESTS.name}{{handler="/v1/completions",status="200"}})')
        assert 0 < answered <= len(texts)
        assert prometheus.firing() == set()


def test_alerts_fire_while_the_engine_is_stopped_and_end_when_it_is_back(tmp_path: Path) -> None:
    """Whatever the server starts in its place is stopped as well, as on a machine that hangs."""
    patient = ("--outage-timeout", "600")  # requests wait for as long as this takes
    with running_server(tmp_path, *patient) as server, scraping(tmp_path, [server.url]) as prometheus:
        wait_for(lambda: prometheus.value(f"sum({catalog.ENGINE_UP.name})") == 1, "an engine that is up")
        with load(server) as texts:
            wait_for(lambda: len(texts) > 1, "answers")
            stopped: dict[int, psutil.Process] = {}

            def fires(alert: str) -> bool:
                for process in psutil.Process(server.process.pid).children(recursive=True):
                    if process.pid not in stopped:
                        stopped[process.pid] = process
                        process.send_signal(signal.SIGSTOP)
                return alert in prometheus.firing()

            replaced = wait_for(lambda: fires("QuireEngineReplaced"), "the first alert")
            down = replaced + wait_for(lambda: fires("QuireEngineDown"), "the second alert")
            print(f"QuireEngineReplaced fired {replaced:.0f} s after the stop, QuireEngineDown {down:.0f} s")
            assert "QuireDown" not in prometheus.firing()  # the server itself answers
            done = len(texts)
            for process in stopped.values():
                if process.is_running():
                    process.kill()
            wait_for(lambda: "QuireEngineDown" not in prometheus.firing(), "the end of the alert")
            wait_for(lambda: len(texts) > done, "an answer that waited")
        assert len(set(texts)) == 1  # nobody saw more of it than a pause
        assert httpx.get(server.url + "/ready").status_code == 200
