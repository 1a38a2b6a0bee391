"""The table of skinny GEMMs as a file: what was tuned goes in, entries of other cards and shapes stay."""

import re
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

from quire.ops.triton import skinny_gemm_table
from quire.ops.triton.skinny_gemm_choices import Choice

Tuned = tuple[int, int, int, Choice | None]
"""Rows, outputs, inputs, and the best way; None where cuBLAS is ahead."""
_MEASURED = re.compile(r"^Measured on: (.*)\.\n", re.MULTILINE)


def table_path() -> Path:
    return Path(skinny_gemm_table.__file__)


def table_source(tuned: Iterable[Tuned], card: str, versions: str) -> str:
    """The file as it stands, with entries for what was measured on this card with these versions of libraries."""
    table = {shape: dict(entries) for shape, entries in skinny_gemm_table.TABLES.get(card, {}).items()}
    for rows, out_size, in_size, choice in tuned:
        entry = None if choice is None else astuple(choice)
        table.setdefault((out_size, in_size), {})[rows] = entry
    lines = []
    for name, shapes in {**skinny_gemm_table.TABLES, card: table}.items():
        lines.append(f'    "{name}": {{')
        for shape, entries in shapes.items():
            lines.append(f"        {shape}: {{")
            lines += [f"            {rows}: {_written(entry)}," for rows, entry in entries.items()]
            lines.append("        },")
        lines.append("    },")
    head, opening, rest = table_path().read_text(encoding="utf-8").partition("Table] = {\n")
    _, closing, tail = rest.partition("\n}\n")
    return _with_versions(head, card, versions) + opening + "\n".join(lines) + closing + tail


def _with_versions(head: str, card: str, versions: str) -> str:
    """The lines that say what each card was measured with, one of them anew."""
    others = [line for line in re.findall(_MEASURED, head) if not line.startswith(f"{card}, ")]
    lines = "".join(f"Measured on: {line}.\n" for line in (*others, f"{card}, {versions}"))
    before, _, behind = head.partition("Measured on: ")
    return before + lines + re.sub(_MEASURED, "", "Measured on: " + behind)


def _written(entry: tuple[object, ...] | None) -> str:
    return str(entry).replace("'", '"')
