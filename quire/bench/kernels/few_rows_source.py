"""The table of products of few rows as a file: what was tuned goes in, entries of other shapes stay."""

import re
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

from quire.ops.triton import few_rows_table
from quire.ops.triton.few_rows_choices import Choice

Tuned = tuple[int, int, int, Choice | None]
"""Rows, outputs, inputs, and the best way; None where cuBLAS is ahead."""


def table_path() -> Path:
    return Path(few_rows_table.__file__)


def table_source(tuned: Iterable[Tuned], machine: str) -> str:
    """The file as it stands, with entries for what was measured."""
    table = {shape: dict(entries) for shape, entries in few_rows_table.TABLE.items()}
    for rows, out_size, in_size, choice in tuned:
        entry = None if choice is None else astuple(choice)
        table.setdefault((out_size, in_size), {})[rows] = entry
    lines = []
    for shape, entries in table.items():
        lines.append(f"    {shape}: {{")
        lines += [f"        {rows}: {_written(entry)}," for rows, entry in entries.items()]
        lines.append("    },")
    head, opening, rest = table_path().read_text(encoding="utf-8").partition("]] = {\n")
    _, closing, tail = rest.partition("\n}\n")
    head = re.sub(r"^Measured on: .*$", f"Measured on: {machine}.", head, flags=re.MULTILINE)
    return head + opening + "\n".join(lines) + closing + tail


def _written(entry: tuple[object, ...] | None) -> str:
    return str(entry).replace("'", '"')
