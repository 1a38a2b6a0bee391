"""Twelve ways for an engine to die or hang, while some requests run and others wait: nobody hangs, and all ends well.

Real processes, the real default model. A client either gets its whole text, as if nothing had happened, or hears that
the server is out of order and when to come back; /health and /ready say what is true meanwhile.
"""

import asyncio
import os
import shutil
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

from quire.models.loading.locate import locate
from tests.server.fault import LOAD, UNAVAILABLE, Story, endure
from tests.server.faults.sitecustomize import FAULTS
from tests.server.live import MODEL, LiveServer, running_server
from tests.server.load import Answer
from tests.server.test_resilience import ask_all, assert_nothing_is_left

KEY = "a-key-for-tests"
ROWS = ("--max-num-seqs", "4")
SHORT_OUTAGE = ("--outage-timeout", "4")
"""Long enough for a loaded machine to notice, too short for an engine to come back by itself."""


@pytest.fixture(scope="module")
def expected(live_server: LiveServer) -> list[Answer]:
    answers = asyncio.run(ask_all(live_server, LOAD))
    assert all(answer.is_done for answer in answers)
    return answers


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    """Files in here make engines fail."""
    folder = tmp_path / "faults"
    folder.mkdir()
    return folder


@contextmanager
def faulty_server(folder: Path, faults: Path, *options: str) -> Iterator[LiveServer]:
    hook = Path(__file__).with_name("faults")
    with running_server(folder, *ROWS, *options, key=KEY, python_path=hook, variables={FAULTS: str(faults)}) as server:
        yield server


def kill_engines(server: LiveServer, *, how: int = signal.SIGKILL) -> None:
    for pid in server.engine_pids():
        os.kill(pid, how)


def everyone_finished(story: Story) -> None:
    assert {outcome.was for outcome in story.outcomes} >= {"running", "waiting"}
    assert [number for number, outcome in enumerate(story.outcomes) if not outcome.is_whole] == []


def outage_was_told(story: Story, why: str) -> None:
    """Whoever was not finished before the outage heard of it; the probes said so first, and took it back in the end."""
    refused = {outcome.was for outcome in story.outcomes if outcome.is_refused}
    assert {"running", "waiting"} <= refused <= {"running", "waiting", "coming"}
    assert [number for number, each in enumerate(story.outcomes) if not (each.is_whole or each.is_refused)] == []
    assert story.of("/ready") == [200, 503, 200]
    assert story.of("/health") == [200, 503, 200]
    [resting, failing] = [change.path for change in story.changes if change.status == 503]
    assert (resting, failing) == ("/ready", "/health")
    assert why in story.reason()
    for answer in story.newcomers:
        assert (answer.status, answer.error and answer.error["code"]) == (503, UNAVAILABLE)
        assert int(answer.retry_after or 0) >= 1


@pytest.mark.slow
def test_kill_9(tmp_path, expected):
    with running_server(tmp_path, *ROWS, key=KEY) as server:
        story = endure(server, expected, lambda: kill_engines(server))
        everyone_finished(story)
        assert story.of("/health") == [200]
        assert_nothing_is_left(server)
    print("\n" + story.figures("kill -9"))


@pytest.mark.slow
def test_stopped_while_serving(tmp_path, expected):
    with running_server(tmp_path, *ROWS, key=KEY) as server:
        story = endure(server, expected, lambda: kill_engines(server, how=signal.SIGSTOP))
        everyone_finished(story)
        assert story.of("/ready") == [200, 503, 200]
        assert_nothing_is_left(server)
    print("\n" + story.figures("SIGSTOP while serving"))


@pytest.mark.slow
def test_stopped_while_starting(tmp_path, expected):
    with running_server(tmp_path, *ROWS, key=KEY) as server:

        def cause() -> None:
            [old] = server.engine_pids()
            os.kill(old, signal.SIGKILL)
            while (new := server.engine_pids()[0]) in (0, old):
                time.sleep(0.01)
            os.kill(new, signal.SIGSTOP)

        story = endure(server, expected, cause)
        everyone_finished(story)
        assert story.of("/ready") == [200, 503, 200]
        assert_nothing_is_left(server)
    print("\n" + story.figures("SIGSTOP while starting"))


def interpreter_in(folder: Path) -> Path:
    """Another way to this interpreter, with the same packages."""
    python = folder / "python" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (folder / "python" / "lib").symlink_to(Path(sys.prefix) / "lib")
    settings = Path(sys.prefix) / "pyvenv.cfg"
    if settings.exists():
        shutil.copy(settings, folder / "python")
    return python


@pytest.mark.slow
def test_interpreter_gone(tmp_path, expected):
    python = interpreter_in(tmp_path)
    hidden = python.with_name("hidden")
    with running_server(tmp_path, *ROWS, *SHORT_OUTAGE, key=KEY, python=python) as server:

        def cause() -> None:
            python.rename(hidden)
            kill_engines(server)

        story = endure(server, expected, cause, lambda: hidden.rename(python))
        outage_was_told(story, "it cannot be started")
        assert_nothing_is_left(server)
    print("\n" + story.figures("interpreter gone"))


@pytest.mark.slow
@pytest.mark.parametrize("is_back_soon", [True, False])
def test_model_gone(tmp_path, expected, is_back_soon):
    model, hidden = tmp_path / "model.gguf", tmp_path / "hidden"
    model.symlink_to(locate(MODEL))
    options = () if is_back_soon else SHORT_OUTAGE
    with running_server(tmp_path, *ROWS, *options, "--served-model-name", MODEL, model=str(model), key=KEY) as server:

        def cause() -> None:
            model.rename(hidden)
            kill_engines(server)
            if is_back_soon:
                time.sleep(5)
                hidden.rename(model)

        story = endure(server, expected, cause, None if is_back_soon else lambda: hidden.rename(model))
        if is_back_soon:
            everyone_finished(story)
            assert story.of("/health") == [200]
            assert story.of("/ready") == [200, 503, 200]
        else:
            outage_was_told(story, "there is no file or folder")
        assert_nothing_is_left(server)
    print("\n" + story.figures("model gone for 5 s" if is_back_soon else "model gone"))


@pytest.mark.slow
def test_socket_folder_gone(tmp_path, expected):
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    with running_server(tmp_path, *ROWS, key=KEY, variables={"TMPDIR": str(sockets)}) as server:

        def cause() -> None:
            """Whoever cleans up is at it for a while: the next engine's folder goes while it starts."""
            kill_engines(server)
            end = time.monotonic() + 2
            while time.monotonic() < end:
                shutil.rmtree(sockets, ignore_errors=True)
                time.sleep(0.05)

        assert list(sockets.glob("quire-*"))
        story = endure(server, expected, cause)
        everyone_finished(story)
        assert list(sockets.glob("quire-*")), "it was made again"
        assert story.of("/ready") == [200, 503, 200]
        assert_nothing_is_left(server)
    print("\n" + story.figures("socket folder gone"))


def test_port_taken(tmp_path, expected):
    secret = tmp_path / "secret"
    secret.write_text("a secret of many characters\n")
    ended: list[subprocess.CompletedProcess[str]] = []
    with running_server(tmp_path, *ROWS, key=KEY) as server:
        port = server.url.rpartition(":")[2]
        listen = ("--listen", f"tcp://127.0.0.1:{port}", "--engine-secret-file", str(secret))

        def cause() -> None:
            for command in (("serve", MODEL, "--port", port), ("engine", MODEL, *listen)):
                run = [sys.executable, "-m", "quire.cli.main", *command]
                ended.append(subprocess.run(run, capture_output=True, text=True, timeout=120, check=False))

        story = endure(server, expected, cause)
        for other in ended:
            assert other.returncode == 2
            assert "cannot listen" in other.stderr
            assert len(other.stderr.splitlines()) == 1, other.stderr
        everyone_finished(story)
        assert (story.of("/ready"), story.of("/health")) == ([200], [200])
        assert_nothing_is_left(server)
    print("\n" + story.figures("port taken"))


@pytest.mark.parametrize(
    ("name", "fault", "why", "fronts"),
    [
        ("import error", "import", "ImportError", 1),
        pytest.param("import error, two fronts", "import", "ImportError", 2, marks=pytest.mark.slow),
        pytest.param("out of memory", "memory", "MemoryError", 1, marks=pytest.mark.slow),
    ],
)
def test_engines_that_cannot_start(tmp_path, expected, faults, name, fault, why, fronts):
    with faulty_server(tmp_path, faults, *SHORT_OUTAGE, "--api-server-count", str(fronts)) as server:

        def cause() -> None:
            (faults / fault).touch()
            kill_engines(server)

        story = endure(server, expected, cause, (faults / fault).unlink)
        outage_was_told(story, why)
        assert_nothing_is_left(server)
    raw = [line for line in server.log.read_text(encoding="utf-8").splitlines() if line.startswith("Traceback")]
    assert fault == "import" or raw == [], "only what throws before the settings came is told outside of the log"
    print("\n" + story.figures(name))


@pytest.mark.slow
def test_full_disk(tmp_path, expected, faults):
    with faulty_server(tmp_path, faults, *SHORT_OUTAGE) as server:

        def upload() -> httpx.Response:
            with server.client() as client:
                return client.post("/v1/files", files={"file": ("lines.jsonl", b"{}\n")}, data={"purpose": "batch"})

        stored: list[httpx.Response] = []

        def cause() -> None:
            (faults / "disk").touch()
            kill_engines(server)
            stored.append(upload())

        story = endure(server, expected, cause, (faults / "disk").unlink)
        outage_was_told(story, "No space left on device")
        assert (stored[0].status_code, stored[0].json()["error"]["code"]) == (507, "insufficient_storage")
        assert upload().status_code == 200
        assert_nothing_is_left(server)
    print("\n" + story.figures("full disk"))


@pytest.mark.slow
@pytest.mark.parametrize("dead", [1, 2])
def test_two_replicas(tmp_path, expected, faults, dead):
    with faulty_server(tmp_path, faults, *SHORT_OUTAGE, "--replicas", "2") as server:
        while {engine["state"] for engine in server.get("/stats")["engines"]} != {"ready"}:
            time.sleep(0.05)

        def cause() -> None:
            (faults / "import").touch()
            for pid in server.engine_pids()[:dead]:
                os.kill(pid, signal.SIGKILL)

        story = endure(server, expected, cause, (faults / "import").unlink)
        if dead == 1:
            everyone_finished(story)
            assert [answer.status for answer in story.newcomers] == [200] * len(story.newcomers)
            assert (story.of("/ready"), story.of("/health")) == ([200], [200])
        else:
            outage_was_told(story, "engine 1")
        assert_nothing_is_left(server)
    print("\n" + story.figures("two replicas, one dead" if dead == 1 else "two replicas, both dead"))


@contextmanager
def engine_host(folder: Path, address: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "quire.cli.main", "engine", MODEL, "--listen", address, *ROWS]
    with (folder / "host.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--engine-secret-file", str(folder / "secret")], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [True, False])
def test_remote_host_gone(tmp_path, expected, is_killed):
    """Its process is gone, and connections with it; or it falls silent, as when a cable is pulled."""
    (tmp_path / "secret").write_text("a secret of many characters\n")
    address = f"tcp://127.0.0.1:{free_port()}"
    options = ("--engines", address, "--engine-secret-file", str(tmp_path / "secret"), *SHORT_OUTAGE)
    with ExitStack() as running:
        host = running.enter_context(engine_host(tmp_path, address))
        server = running.enter_context(running_server(tmp_path, *options, key=KEY))

        def cure() -> None:
            if is_killed:
                running.enter_context(engine_host(tmp_path, address))
            else:
                host.send_signal(signal.SIGCONT)

        gone = signal.SIGKILL if is_killed else signal.SIGSTOP
        story = endure(server, expected, lambda: host.send_signal(gone), cure)
        outage_was_told(story, "cannot be reached" if is_killed else "has been silent")
        assert_nothing_is_left(server)
    print("\n" + story.figures("remote host gone" if is_killed else "remote host silent"))
