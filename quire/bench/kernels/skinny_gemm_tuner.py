"""The tuner of skinny GEMMs: measures every candidate, and writes the table with the best."""

from collections.abc import Callable
from time import monotonic

import torch

from quire.bench.kernels.result import KernelResult
from quire.bench.kernels.skinny_gemm import measure
from quire.bench.kernels.skinny_gemm_source import table_source
from quire.ops.triton.compiler import version


def tune(seconds: float, say: Callable[[str], None]) -> tuple[list[KernelResult], str]:
    """What was measured in about so long, and the source of the table as it should be on this device."""
    outcomes = list(measure(tune=True, deadline=monotonic() + seconds, say=say))
    tuned = [
        (each.case.rows, each.case.out_size, each.case.in_size, each.choice if each.is_ahead else None)
        for each in outcomes
    ]
    card, versions = torch.cuda.get_device_name(), f"torch {torch.__version__}, triton {version()}"
    return [each.result() for each in outcomes], table_source(tuned, card, versions)
