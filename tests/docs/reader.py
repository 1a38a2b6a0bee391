"""Somebody who follows a page from top to bottom, in a folder of their own, with the project's environment activated.

A server that a block starts runs until the page starts another one. It gets a free port, which takes the place of the
page's 8000 in everything after it. What a line that starts it has for the shell (`> server.log 2>&1 &`) is done here.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml
from websockets.sync.client import connect

from quire.server.gate.keys_file import parse_keys
from tests.docs.blocks import ROOT, Block
from tests.models.loading.files import LLAMA_3_8B, write_config

_SERVER = re.compile(r"(scripts/serve|quire serve)\b")
_PAGE_PORT = "127.0.0.1:8000"
_LONGEST = 600.0
"""Seconds; only a block that hangs takes so long."""
_TYPED = "What is the capital of France?\n"
"""On the standard input of every command."""


class Reader:
    """Runs blocks in the order they are given."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = ""
        self._server: subprocess.Popen[bytes] | None = None
        (folder / ".venv").symlink_to(sys.prefix)
        write_config(folder / "llama-8b", LLAMA_3_8B)  # the model that README plans with
        clean = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
        self._environment = clean | {
            "PATH": programs,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "98",
            "PIP_NO_INDEX": "1",  # the tests' environment has what pages install
            "QUIRE_STORE": str(folder / "store"),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_server()

    def follow(self, block: Block) -> None:
        """Do what a block says; an AssertionError says what came of it."""
        try:
            getattr(self, f"_{block.language}")(block.text.replace(_PAGE_PORT, self._address or _PAGE_PORT))
        except (AssertionError, ValueError, KeyError, OSError) as error:
            raise AssertionError(f"{block.place}: {error}") from error

    # -- languages ---------------------------------------------------------------------------------------------

    def _text(self, text: str) -> None:
        commands = re.findall(r"^(?:\$|quire|python|pip|curl|scripts/\w+) .*", text, re.MULTILINE)
        assert not commands, f"a block of text with commands: {commands}"

    def _python(self, text: str) -> None:
        self._run([sys.executable, "-W", "error", "-c", text])

    def _bash(self, text: str) -> None:
        lines = text.replace("\\\n", " ").splitlines()
        for is_server, some in groupby(lines, lambda line: _SERVER.match(line) is not None):
            if is_server:
                for line in some:
                    self._start_server(shlex.split(line, comments=True))
            else:
                self._run(["bash", "-euo", "pipefail", "-c", "\n".join(some)])

    def _console(self, text: str) -> None:
        """A command and all that it prints."""
        first, _, expected = text.partition("\n")
        command = shlex.split(first.removeprefix("$ "), comments=True)
        shown = [line.rstrip() for line in self._run(command).splitlines()]
        wanted = [line.rstrip() for line in expected.splitlines()]
        assert [line for line in shown if line] == [line for line in wanted if line], "\n".join(["it prints", *shown])

    def _yaml(self, text: str) -> None:
        """A keys file, which is all that pages show so far."""
        assert yaml.safe_load(text)
        assert parse_keys(text, "the page")

    def _json(self, text: str) -> None:
        """Frames for the WebSocket of the page's server, one a line; the last ends the generation."""
        frames = [json.loads(line) for line in text.splitlines()]
        with connect(f"ws://{self._address}/v1/stream", proxy=None) as socket_to_server:
            kinds: list[str] = []
            for frame in frames:
                socket_to_server.send(json.dumps(frame))
                kinds.append(self._frame(socket_to_server)["type"])
            while kinds[-1] == "event":
                kinds.append(self._frame(socket_to_server)["type"])
        assert kinds[0] == "event", kinds
        assert kinds[-1] in ("done", "cancelled"), kinds

    # -- processes ---------------------------------------------------------------------------------------------

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            input=_TYPED,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _start_server(self, command: list[str]) -> None:
        self._stop_server()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        if "--port" in command:
            command[command.index("--port") + 1] = port
        if command[0] == "scripts/serve":
            # it prepares .venv first, which only a clone that was prepared already does in no time
            own = Path(sys.prefix) == ROOT / ".venv" and _is_prepared()
            command = [str(ROOT / command[0]), *command[1:]] if own else ["quire", "serve", *command[1:]]
        log = self._folder / "server.log"
        if ">" in command:
            place = command.index(">")
            log = self._folder / command[place + 1]
            assert command[place + 2 :] in ([], ["2>&1"], ["2>&1", "&"]), f"not understood: {command[place:]}"
            command = command[:place]
        with log.open("wb") as output:
            self._server = subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment | {"QUIRE_PORT": port},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._address = f"127.0.0.1:{port}"
        self._wait_until_ready(log)

    def _wait_until_ready(self, log: Path) -> None:
        assert self._server is not None
        end = time.monotonic() + _LONGEST
        while time.monotonic() < end and self._server.poll() is None:
            try:
                if httpx.get(f"http://{self._address}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"the server did not become ready:\n{log.read_text(encoding='utf-8')[-4000:]}")

    def _stop_server(self) -> None:
        server, self._server = self._server, None
        if server is not None and server.poll() is None:
            server.send_signal(signal.SIGTERM)
            assert server.wait(_LONGEST) == 0, "the server did not end well"

    def _frame(self, connection: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(connection.recv(timeout=_LONGEST))
        return found


def _is_prepared() -> bool:
    """Whether the scripts have nothing to install: whoever installs by hand leaves no sign that they know."""
    ask = f"source {ROOT}/scripts/_venv.sh; is_current $venv/.quire-base"
    return subprocess.run(["bash", "-c", ask], check=False).returncode == 0
