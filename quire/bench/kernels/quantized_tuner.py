"""The tuner of quantized skinny GEMMs: measures every candidate, and writes the table with the best."""

from collections.abc import Callable, Iterable
from dataclasses import astuple

import torch

from quire.bench.kernels.quantized_gemm import Outcome, tuned
from quire.bench.kernels.result import KernelResult
from quire.ops.triton.compiler import version
from quire.ops.triton.quantized_skinny_table import TABLES
from quire.ops.triton.skinny_gemm_table import Table

_HEAD = '''"""How quantized skinny GEMMs are cut for the shapes of known models, by card and form: data alone, no code.

Written by `quire bench kernels quantized_linear --tune --table quire/ops/triton/quantized_skinny_table.py`.
Last measured on: {card}, {versions}.
"""

from quire.ops.triton.skinny_gemm_table import Table

TABLES: dict[str, dict[str, Table]] = {{
'''
_TAIL = '''}
"""By the name that a card's driver gives it, then by form; None where the way of many rows is faster."""
'''


def tune(seconds: float, say: Callable[[str], None]) -> tuple[list[KernelResult], str]:
    """What was measured in about so long, and the source of the table as it should be on this device."""
    outcomes = list(tuned(seconds, say))
    card, versions = torch.cuda.get_device_name(), f"torch {torch.__version__}, triton {version()}"
    return [_result(each) for each in outcomes], table_source(outcomes, card, versions)


def table_source(outcomes: Iterable[Outcome], card: str, versions: str) -> str:
    """The file, with entries for what was measured on this card; those of other cards and shapes stay."""
    forms: dict[str, Table] = {form: dict(table) for form, table in TABLES.get(card, {}).items()}
    for each in outcomes:
        entry = astuple(each.choice) if each.choice is not None and each.is_ahead else None
        entries = forms.setdefault(str(each.form), {}).setdefault((each.out_size, each.in_size), {})
        entries[each.rows] = entry
    lines = [_HEAD.format(card=card, versions=versions)]
    for name, tables in {**TABLES, card: forms}.items():
        lines.append(f'    "{name}": {{\n')
        for form, table in tables.items():
            lines.append(f'        "{form}": {{\n')
            for shape, by_rows in table.items():
                lines.append(f"            {shape}: {{\n")
                lines += [f"                {rows}: {entry},\n".replace("'", '"') for rows, entry in by_rows.items()]
                lines.append("            },\n")
            lines.append("        },\n")
        lines.append("    },\n")
    return "".join(lines) + _TAIL


def _result(outcome: Outcome) -> KernelResult:
    rows, out_size, in_size = outcome.rows, outcome.out_size, outcome.in_size
    how = "many" if outcome.choice is None else " ".join(map(str, astuple(outcome.choice)))
    return KernelResult(
        op=f"quantized_linear {outcome.form}",
        case=f"{rows} × {in_size} → {out_size} ({how})",
        seconds=outcome.ours or outcome.many,
        bytes=0.0,
        operations=2.0 * rows * out_size * in_size,
        beside=sum(outcome.many) / len(outcome.many),
        beside_name="the way of many rows",
    )
