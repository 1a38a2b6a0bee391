"""A real Prometheus with the rules of deploy/prometheus, which reads servers of a test every second."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.chart import ROOT
from tests.observe.promtool import program
from tests.router.instances import free_port


class Prometheus:
    """What it knows."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=30)
        found: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
        return found

    def value(self, expression: str) -> float:
        """Of an expression with one result; 0 where there is none yet."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else 0.0

    def firing(self) -> set[str]:
        """Names of alerts."""
        alerts = httpx.get(f"{self.url}/api/v1/alerts", timeout=30).raise_for_status().json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


@contextmanager
def scraping(folder: Path, servers: list[str], *, interval: str = "1s") -> Iterator[Prometheus]:
    """Prometheus with the configuration that quire ships, but for the interval and the addresses of servers."""
    shutil.copytree(ROOT / "deploy" / "prometheus", folder / "etc")
    configuration = folder / "etc" / "prometheus.yml"
    text = configuration.read_text(encoding="utf-8")
    configuration.write_text(re.sub(r"(_interval): \d+s", rf"\1: {interval}", text), encoding="utf-8")
    targets = [{"targets": [server.removeprefix("http://") for server in servers]}]
    (folder / "etc" / "targets.yml").write_text(yaml.safe_dump(targets), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [program("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        found = Prometheus(f"http://{address}")
        end = time.monotonic() + 60
        while not _is_ready(found.url):
            assert process.poll() is None, (folder / "prometheus.log").read_text(encoding="utf-8")[-3000:]
            assert time.monotonic() < end
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
