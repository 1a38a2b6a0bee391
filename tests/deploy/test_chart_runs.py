"""The chart's containers, started here with their own words and variables: probes, keys, engines and drain are real."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.deploy.chart import Manifest, Values, container, named, rendered, workloads

pytestmark = pytest.mark.slow
KEY = "key-of-all-clients-0123456789"
SECRETS: Values = {"apiKey": KEY, "engineSecret": "secret-of-the-engines-0123456789"}
LONGEST_START = 180.0
OF_THE_SERVICE = {
    "QUIRE_PORT": "tcp://10.0.0.1:80",
    "QUIRE_SERVICE_HOST": "10.0.0.1",
    "QUIRE_SERVICE_PORT": "80",
    "QUIRE_PORT_80_TCP_ADDR": "10.0.0.1",
}
"""What Kubernetes says of a Service called quire, to pods that have not asked it not to."""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Pod:
    """The container of a workload on this machine: its volumes are folders, its Secret the values of this file."""

    def __init__(self, workload: Manifest, folder: Path, words: dict[str, str], settings: str) -> None:
        """`words` replace what only a cluster knows, such as names of pods; `settings` is what the ConfigMap holds."""
        self.container = container(workload)
        self.folder = folder
        files = {"engine-secret/secret": SECRETS["engineSecret"], "settings/settings.yaml": settings}
        for mount in self.container["volumeMounts"]:
            (folder / mount["name"]).mkdir(parents=True, exist_ok=True)
            if mount["mountPath"].startswith("/etc/"):
                words |= {mount["mountPath"]: str(folder / mount["name"])}
        for name, text in files.items():
            if (folder / name).parent.exists():
                (folder / name).write_text(text, encoding="utf-8")
        self._command = [sys.executable, "-m", "quire.cli.main", *(_replaced(word, words) for word in self._args())]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        self._environment |= OF_THE_SERVICE | {"OMP_NUM_THREADS": "1"}
        for variable in self.container["env"]:
            if "secretKeyRef" in variable.get("valueFrom", {}):
                self._environment[variable["name"]] = KEY
        self.process: subprocess.Popen[bytes] | None = None

    def _args(self) -> list[str]:
        args: list[str] = self.container["args"]
        return args

    def start(self) -> None:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _replaced(word: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        word = word.replace(old, new)
    return word


def probed(pod: Pod, kind: str, url: str) -> int:
    """The answer to a probe: nothing but its path, at the pod's address."""
    try:
        return httpx.get(url + pod.container[kind]["httpGet"]["path"], timeout=5).status_code
    except httpx.TransportError:
        return 0


def wait_for(pod: Pod, kind: str, url: str) -> None:
    end = time.monotonic() + LONGEST_START
    while probed(pod, kind, url) != 200:
        assert pod.process is not None
        assert pod.process.poll() is None, pod.log()
        assert time.monotonic() < end, pod.log()
        time.sleep(0.2)


@contextmanager
def started(values: Values, folder: Path) -> Iterator[tuple[Pod, str, list[Pod]]]:
    """The server of a release, its address, and its engines."""
    manifests = rendered(values)
    ports = {f"tcp://quire-{role}-0.quire-{role}:7700": free_port() for role in ("prefill", "decode")}
    addresses = {name: f"tcp://127.0.0.1:{port}" for name, port in ports.items()}
    url = f"http://127.0.0.1:{free_port()}"
    maps = [each for each in manifests if each["kind"] == "ConfigMap"]
    settings = maps[0]["data"]["settings.yaml"] if maps else ""
    with ExitStack() as stack:
        engines = []
        for workload in workloads(manifests):
            name = workload["metadata"]["name"]
            if name == "quire":
                continue
            own = addresses[f"tcp://{name}-0.{name}:7700"]
            engines.append(Pod(workload, folder / name, {"tcp://$(POD_IP):7700": own}, settings))
        words = addresses | {"8000": url.rpartition(":")[2]}
        server = Pod(named(manifests, "Deployment"), folder / "server", words, settings)
        for pod in (*engines, server):
            stack.callback(pod.end)
            pod.start()
        wait_for(server, "startupProbe", url)
        yield server, url, engines


def ask(url: str, tokens: int = 8) -> str:
    body = {"prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=120)
    return str(answer.raise_for_status().json()["choices"][0]["text"])


def test_server_of_the_chart_answers_probes_without_a_key_and_drains(tmp_path: Path) -> None:
    with started({"secrets": {"apiKey": KEY}}, tmp_path) as (server, url, _):
        assert probed(server, "readinessProbe", url) == 200
        assert probed(server, "livenessProbe", url) == 200
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert ask(url)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_server_without_keys_answers_by_the_name_of_its_service(tmp_path: Path) -> None:
    with started({}, tmp_path) as (_, url, _):
        for host, status in (("quire.llm.svc:80", 200), ("quire", 200), ("evil.example", 421)):
            assert httpx.get(f"{url}/v1/models", headers={"Host": host}).status_code == status, host


def test_prefill_and_decode_engines_of_the_chart_work_together(tmp_path: Path) -> None:
    values: Values = {"secrets": SECRETS, "engines": {"enabled": True}, "settings": {"max_num_seqs": 4}}
    with started(values, tmp_path) as (_, url, engines):
        assert len(engines) == 2
        for engine in engines:  # as its probes do, which must not fill the log
            address = next(word for word in engine._command if word.startswith("--listen="))
            for _ in range(3):
                socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 5).close()
        assert ask(url, 16)
        for engine in engines:
            assert "refused" not in engine.log()
