"""The native core's paged attention: decodes and prompts, with keys and values in float16."""

from collections.abc import Iterator

import torch

from quire.bench.kernels.attention_cases import AttentionCase, make_inputs
from quire.bench.kernels.cpu_timing import time_calls
from quire.bench.kernels.result import KernelResult
from quire.ops.cpu.machine import machine
from quire.ops.cpu.tape import Tape, TapeInput
from quire.ops.functional import paged_attention

CASES = (
    *(AttentionCase(sequences, 1024, 1, 9, 3, 64) for sequences in (1, 16, 64)),
    AttentionCase(1, 512, 512, 9, 3, 64),
    AttentionCase(1, 2048, 512, 9, 3, 64),
)
"""Heads of the default model."""
_NAMES = ("tables", "starts", "lengths")


def results(seconds: float) -> Iterator[KernelResult]:
    core = machine()
    assert core is not None  # the pool was started
    for case in CASES:
        given = make_inputs(case, torch.float16, "cpu")
        query = given.query.float().flatten(1)
        output = torch.empty_like(query)
        tape = Tape()
        value = tape.given(TapeInput("query"), case.heads, case.head_dim)
        tables, starts, lengths = (TapeInput(name) for name in _NAMES)
        scale = case.head_dim**-0.5
        result = paged_attention(value, given.keys, given.values, tables, starts, lengths, scale=scale)  # type: ignore[arg-type]
        tape.give(result, TapeInput("output"))  # type: ignore[arg-type]
        program = tape.finish()
        inputs = {
            "query": query,
            "output": output,
            "tables": given.tables,
            "starts": given.starts,
            "lengths": given.lengths,
            "num_sequences": torch.tensor(case.sequences),
        }
        rows = case.sequences * case.new
        times = time_calls([lambda p=program, i=inputs, r=rows: p.run(core, r, i)], seconds)  # type: ignore[misc]
        yield KernelResult("attention", str(case), times, case.bytes(2), case.operations())
