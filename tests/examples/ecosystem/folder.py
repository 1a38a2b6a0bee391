"""The examples with other people's packages, what each says that it needs, and environments that have it."""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.server.live import LiveServer

ECOSYSTEM = Path(__file__).parents[3] / "examples" / "ecosystem"
_LONGEST_INSTALL = 1800.0
_LONGEST_START = 300.0
_LONGEST_RUN = 600.0


def requirements(example: str) -> list[str]:
    """What its first lines say is to be installed."""
    [line] = re.findall(r"^[# ]*pip install (.*)$", (ECOSYSTEM / example).read_text(encoding="utf-8"), re.MULTILINE)
    return shlex.split(line, comments=True)


def own_venv(folder: Path, example: str) -> Path:
    """A fresh environment with what an example needs, apart from the tests' own; the folder of its programs.

    Skips where the packages cannot be installed, and says why.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=_LONGEST_INSTALL)
    needed = requirements(example)
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *needed],
        capture_output=True,
        text=True,
        timeout=_LONGEST_INSTALL,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"{' '.join(needed)} cannot be installed: {done.stderr.strip()[-300:]}")
    return folder / "bin"


def variables(server: LiveServer, **more: str) -> dict[str, str]:
    """An environment in which examples find the server and nothing of the tests' own packages."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return clean | offline | {"QUIRE_BASE_URL": server.url} | more


def said_by(command: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """What a command prints; an error shows all of it."""
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_LONGEST_RUN, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def started(command: list[str], environment: Mapping[str, str], folder: Path, ready: str) -> Iterator[None]:
    """A process beside the test, from when `ready` answers with 200 until the end of the block."""
    log = folder / f"{Path(command[-1]).name}-{time.monotonic_ns()}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(process, ready, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", ready: str, log: Path) -> None:
    end = time.monotonic() + _LONGEST_START
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(ready, timeout=5).status_code < 500:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{ready} did not answer:\n{log.read_text(encoding='utf-8', errors='replace')[-4000:]}")


def refused(server: LiveServer) -> list[str]:
    """What a server would not answer, as its log tells it."""
    return [
        record["message"]
        for record in server.logged()
        if record.get("status", 0) >= 400 and record["path"] not in ("/ready", "/favicon.ico")
    ]
