"""Traces of real traffic as requests: CSV with a header, or JSON lines. Every bad line is named with what it may hold.

| field | meaning |
|---|---|
| `arrival_time` | seconds, from any start |
| `TIMESTAMP` | a date and time of day, as in the Azure LLM inference traces |
| `timestamp` | milliseconds where the first line's is a whole number, as in the Mooncake traces; else seconds |
| `input_length`, `input_tokens` or `ContextTokens` | a whole number from 1 |
| `output_length`, `output_tokens` or `GeneratedTokens` | likewise |
| `hash_ids` (optional) | a list: names of the prompt's pieces of `block` tokens (512 in the Mooncake traces) |
| `tenant`, `priority` (optional) | text; a whole number, smaller goes first |
"""

import csv
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from quire.core.errors import ConfigError
from quire.core.request import DEFAULT_TENANT
from quire.core.sampling_params import MAX_PRIORITY
from quire.simulation.limits import LONGEST, MAX_NUMBER, TimeUnit
from quire.simulation.workload import SimulatedRequest

ARRIVAL = ("arrival_time", "timestamp", "TIMESTAMP")
INPUT = ("input_length", "input_tokens", "ContextTokens")
OUTPUT = ("output_length", "output_tokens", "GeneratedTokens")
LONGEST_TIME = 1e12
"""Seconds: beyond any calendar, and still exact to a tenth of a millisecond."""


class TraceReader:
    """Reads one file. `unit` and `block` say what the file cannot; `limit` stops after that many requests."""

    def __init__(self, path: Path, unit: TimeUnit = "auto", block: int = 512, limit: int | None = None) -> None:
        if block < 1:
            raise ConfigError(f"--trace-block is {block}, but it must be 1 or more tokens; 512 in the Mooncake traces.")
        self._path = path
        self._unit = unit
        self._block = block
        self._limit = limit
        self._line = 0
        self._ids: dict[int | str, int] = {}

    def read(self) -> list[SimulatedRequest]:
        """All requests, by time of arrival; the first arrives at 0."""
        found: list[SimulatedRequest] = []
        try:
            for record in islice(self._records(), self._limit):
                found.append(self._request(len(found), record))
        except OSError as error:
            raise ConfigError(f"the trace {self._path} cannot be read: {error.strerror or error}.") from error
        if not found:
            raise ConfigError(f"the trace {self._path} holds no request.")
        first = min(request.arrival for request in found)
        found.sort(key=lambda request: request.arrival)
        return [msgspec.structs.replace(request, arrival=request.arrival - first) for request in found]

    @property
    def unit(self) -> str:
        """What times were read as: `s` or `ms`."""
        return "s" if self._unit == "auto" else self._unit

    # -- lines -------------------------------------------------------------------------------------------------

    def _records(self) -> Iterator[dict[str, Any]]:
        suffix = self._path.suffix.lower()
        if suffix not in (".csv", ".jsonl", ".json"):
            raise ConfigError(f"the trace {self._path} must end in .csv or .jsonl, so that its form is known.")
        with self._path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            yield from self._csv_records(file) if suffix == ".csv" else self._json_records(file)

    def _json_records(self, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        decoder = msgspec.json.Decoder()
        for self._line, text in enumerate(lines, start=1):
            if not text.strip():
                continue
            try:
                record = decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._wrong(f"{_short(text.strip())} is not a JSON object: {error}") from error
            if not isinstance(record, dict):
                raise self._wrong(f"{_short(record)} is not a JSON object with the fields of a request")
            yield record

    def _csv_records(self, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        reader = csv.reader(lines)
        self._line = 1
        try:
            header = [name.strip() for name in next(reader, [])]
            for fields in (ARRIVAL, INPUT, OUTPUT):
                if not any(name in header for name in fields):
                    raise self._wrong(f"the header {','.join(header)!r} has no column {' or '.join(fields)}")
            for row in reader:
                self._line = reader.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise self._wrong(f"{len(row)} columns, but the header has {len(header)}")
                yield {name: value.strip() for name, value in zip(header, row, strict=True) if value.strip()}
        except csv.Error as error:
            raise self._wrong(f"not CSV: {error}") from error

    # -- fields ------------------------------------------------------------------------------------------------

    def _request(self, number: int, record: dict[str, Any]) -> SimulatedRequest:
        given = self._count(record, INPUT)
        tenant = record.get("tenant", DEFAULT_TENANT)
        if not isinstance(tenant, str) or not tenant:
            raise self._wrong(f"tenant is {_short(tenant)}, but it must be text")
        return SimulatedRequest(
            number=number,
            arrival=self._arrival(record),
            input_tokens=given,
            output_tokens=self._count(record, OUTPUT),
            tenant=tenant,
            priority=self._whole(record, "priority", -MAX_PRIORITY, MAX_PRIORITY) if "priority" in record else 0,
            hash_ids=self._hash_ids(record["hash_ids"], given) if "hash_ids" in record else (),
            hash_block=self._block,
        )

    def _arrival(self, record: dict[str, Any]) -> float:
        name = self._field(record, ARRIVAL)
        value = _number(record[name])
        if name == "TIMESTAMP":
            value = _moment(record[name])
            if value is None:
                raise self._wrong(f"TIMESTAMP is {_short(record[name])}, but it must be like 2023-11-16 18:15:46.68")
        if value is None or not math.isfinite(value) or not 0 <= value <= LONGEST_TIME:
            raise self._wrong(f"{name} is {_short(record[name])}, but it must be a number from 0")
        if name != "timestamp":
            return float(value)
        if self._unit == "auto":
            self._unit = "ms" if isinstance(value, int) else "s"
        if self._unit == "ms" and not isinstance(value, int):
            raise self._wrong(
                f"timestamp is {value}, but those before are whole numbers and were read as milliseconds; "
                "say what they are with --trace-time s or write whole milliseconds"
            )
        return value / 1e3 if self._unit == "ms" else float(value)

    def _count(self, record: dict[str, Any], names: tuple[str, ...]) -> int:
        return self._whole(record, self._field(record, names), 1, LONGEST)

    def _whole(self, record: dict[str, Any], name: str, low: int, high: int) -> int:
        value = _number(record[name])
        if not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(f"{name} is {_short(record[name])}, but it must be a whole number from {low} to {high}")
        return value

    def _hash_ids(self, value: Any, given: int) -> tuple[int, ...]:
        ids = value.strip("[]").replace(",", " ").replace(";", " ").split() if isinstance(value, str) else value
        if not isinstance(ids, list) or not all(isinstance(each, int | str) for each in ids):
            raise self._wrong(f"hash_ids is {_short(value)}, but it must be a list of whole numbers or text")
        most = -(-given // self._block)
        if len(ids) > most:
            raise self._wrong(
                f"{len(ids)} hash_ids, but {given} input tokens have {most} pieces of {self._block} tokens; "
                "set --trace-block to the tokens that one id stands for"
            )
        numbers = tuple(self._ids.setdefault(each, len(self._ids)) for each in ids)
        if len(self._ids) > MAX_NUMBER:
            raise self._wrong(f"more than {MAX_NUMBER} different hash_ids")
        return numbers

    def _field(self, record: dict[str, Any], names: tuple[str, ...]) -> str:
        for name in names:
            if name in record:
                return name
        raise self._wrong(f"{' or '.join(names)} is missing; the line has {', '.join(record) or 'nothing'}")

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{self._path}, line {self._line}: {what}.")


def _number(value: Any) -> int | float | None:
    """A number as it was written: whole ones as int. None for anything else."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _moment(value: Any) -> float | None:
    """Seconds since 1970 of a date and time; without a zone it is taken as UTC. None for anything else."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
