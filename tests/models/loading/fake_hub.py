"""A small hub of our own on a local socket, and processes that ask it as users' own do."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


class FakeHub(BaseHTTPRequestHandler):
    """Answers /{owner}/{model}/resolve/{revision}/{file} from a folder, ranges included, and lists its files."""

    folder: Path

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        repo, resolve, rest = self.path.strip("/").partition("/resolve/")
        path = self.folder / repo / rest.partition("/")[2]
        if self.path.startswith("/api/models/"):
            return self._list(self.path.removeprefix("/api/models/").partition("?")[0], with_body)
        if not resolve:
            return self._send(200, b"", {}, with_body)
        if not (self.folder / repo).is_dir():
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body)
        if not path.is_file():
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": "a" * 40}, with_body)
        with path.open("rb") as file:
            size = path.stat().st_size
            wanted = self.headers.get("Range")
            first, last = map(int, wanted.removeprefix("bytes=").split("-")) if wanted else (0, size - 1)
            file.seek(first)
            body = file.read(min(last, size - 1) - first + 1)
        tags = {"ETag": f'"{path.name}"', "X-Repo-Commit": "a" * 40, "Accept-Ranges": "bytes"}
        return self._send(206 if wanted else 200, body, tags, with_body)

    def _list(self, asked: str, with_body: bool) -> None:
        """/{owner}/{model}/revision/{revision}, and /{owner}/{model}/tree/{revision}."""
        repo = "/".join(asked.split("/")[:2])
        if not (self.folder / repo).is_dir():
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body)
        files = sorted(path for path in (self.folder / repo).rglob("*") if path.is_file())
        names = [path.relative_to(self.folder / repo).as_posix() for path in files]
        tree = [
            {"type": "file", "path": name, "size": path.stat().st_size, "oid": "c" * 40}
            for name, path in zip(names, files, strict=True)
        ]
        info = {"id": repo, "sha": "a" * 40, "siblings": [{"rfilename": name} for name in names]}
        body = json.dumps(tree if "/tree/" in asked else info).encode()
        return self._send(200, body, {"Content-Type": "application/json"}, with_body)

    def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_hub(folder: Path) -> Iterator[str]:
    """The address of a hub whose repositories are the folders owner/model of `folder`."""
    handler = type("Hub", (FakeHub,), {"folder": folder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(tmp_path: Path, endpoint: str, program: str, *arguments: str, offline: bool = False) -> str:
    """What a process prints whose hub is at `endpoint`; `offline` forbids it to ask."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "QUIRE_"))}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
    environment |= {"HF_HUB_OFFLINE": "1"} if offline else {}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
