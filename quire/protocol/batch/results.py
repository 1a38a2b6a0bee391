"""The output of a batch: one result a line, on disk before the next step runs, so that a killed batch can go on.

A line is written at once and synced; a line that a crash cut short is taken away when the file is opened again.
"""

import fcntl
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from quire.core.errors import ConfigError
from quire.protocol.batch.lines import BadLine, BatchLine

_START = b'{"id":"batch_req_'
"""How every line of ours begins."""


class ResultFile:
    """An output file that may hold results of an earlier run. One process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: set[str] = set()
        self._bad: set[tuple[int, str]] = set()
        self._file = _open(path)
        try:
            self._load()
        except BaseException:
            self._file.close()
            raise

    def covers(self, line: BatchLine | BadLine) -> bool:
        """Whether a line has its result already."""
        if isinstance(line, BadLine):
            return (line.number, line.code) in self._bad
        return line.custom_id in self._done

    def append(self, results: Iterable[dict[str, Any]]) -> None:
        """Write results, and return when they are on disk."""
        lines = [msgspec.json.encode({"id": f"batch_req_{secrets.token_hex(12)}"} | result) for result in results]
        if lines:
            self._file.write(b"".join(line + b"\n" for line in lines))
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _load(self) -> None:
        """Read what is there. Nothing is cut off before all of it has turned out to be ours."""
        end, number, line = 0, 0, b"\n"
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            self._take(line, number)
            end += len(line)
        if line.endswith(b"\n"):
            return
        try:
            self._take(line, number)
            self._file.write(b"\n")  # only its end was missing
        except ConfigError:
            if not (line.startswith(_START) or _START.startswith(line)):
                raise
            self._file.truncate(end)

    def _take(self, line: bytes, number: int) -> None:
        try:
            result = msgspec.json.decode(line)
            known, error = {"id", "custom_id", "response", "error"} <= result.keys(), result["error"]
        except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, KeyError):
            raise self._foreign(number) from None
        if not known:
            raise self._foreign(number)
        if isinstance(error, dict) and isinstance(error.get("line"), int):
            self._bad.add((error["line"], str(error.get("code"))))
        elif isinstance(result["custom_id"], str):
            self._done.add(result["custom_id"])

    def _foreign(self, number: int) -> ConfigError:
        return ConfigError(
            f"{self._path} exists, and its line {number} is no result of a batch, so it is left alone; "
            "name another output file."
        )


def _open(path: Path) -> IO[bytes]:
    try:
        file = path.open("a+b")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(f"another process is writing {path}; wait for it or name another output file.") from None
    file.seek(0)
    return file
