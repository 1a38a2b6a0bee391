"""BatchJournal: the results of a batch that runs, on disk one by one, so that a killed server need not repeat them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from quire.protocol.batch.lines import BatchLine
from quire.protocol.batch.results import ResultFile

_PIECE = 1 << 20
"""Bytes read at a time."""


class _Response(msgspec.Struct, frozen=True):
    status_code: int


class _Result(msgspec.Struct, frozen=True):
    response: _Response | None

    @property
    def good(self) -> bool:
        return self.response is not None and self.response.status_code == 200


class BatchJournal:
    """One file of results, open for a run. The disk is waited for on other threads."""

    def __init__(self, path: Path, results: ResultFile) -> None:
        """Use `open`."""
        self._path = path
        self._results = results
        self._written: set[str] = set()
        self._turn = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> "BatchJournal":
        """Raises a ConfigError where another process has it open, or where it is not a journal."""
        opening = asyncio.ensure_future(asyncio.to_thread(ResultFile, path))
        try:
            return cls(path, await asyncio.shield(opening))
        except asyncio.CancelledError:
            (await opening).__exit__(None, None, None)  # else it would stay locked
            raise

    def covers(self, line: BatchLine) -> bool:
        """Whether a line has its result."""
        return line.custom_id in self._written or self._results.covers(line)

    async def append(self, result: dict[str, Any]) -> bool:
        """Whether it was written; it is on disk then, even where the wait for it is cut short."""
        return await asyncio.shield(self._append(result))

    async def close(self) -> None:
        async with self._turn:
            self._closed = True
            self._results.__exit__(None, None, None)

    async def counts(self) -> tuple[int, int]:
        """How many results are good and how many are not."""
        async with self._turn:  # behind what is being written
            return await asyncio.to_thread(_count, self._path)

    async def pick(self, *, good: bool) -> AsyncIterator[bytes]:
        """The good results, or the others, in pieces of whole lines."""
        at = 0
        while lines := await asyncio.to_thread(_read, self._path, at):
            at += sum(map(len, lines))
            yield await asyncio.to_thread(_pick, lines, good)

    async def _append(self, result: dict[str, Any]) -> bool:
        async with self._turn:
            if self._closed:
                return False
            await asyncio.to_thread(self._results.append, [result])
            self._written.add(result["custom_id"])
            return True


def _read(path: Path, at: int) -> list[bytes]:
    """Whole lines. No file stays open between pieces: whoever waits for the next one may be cancelled."""
    with path.open("rb") as file:
        file.seek(at)
        return file.readlines(_PIECE)


def _pick(lines: list[bytes], good: bool) -> bytes:
    decoder = msgspec.json.Decoder(_Result)
    return b"".join(line for line in lines if decoder.decode(line).good is good)


def _count(path: Path) -> tuple[int, int]:
    decoder = msgspec.json.Decoder(_Result)
    counts = [0, 0]
    with path.open("rb") as file:
        for line in file:
            counts[decoder.decode(line).good] += 1
    return counts[True], counts[False]
