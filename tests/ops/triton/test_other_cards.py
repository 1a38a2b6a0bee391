"""Kernels compile for cards that are not here, and fit their shared memory as they are chosen for them."""

import json
import os
import subprocess
import sys

import pytest

from tests.ops.triton.device import needs_triton

pytestmark = [needs_triton, pytest.mark.slow]

SHARED_MEMORY = {"a100": 163 << 10, "l4": 99 << 10, "mi300x": 64 << 10}


def test_every_kernel_fits_with_one_stage_and_takes_more_with_more() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.ops.triton.compile_elsewhere"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found, chosen, in_fp8, chunked = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(SHARED_MEMORY)
    for card, kernels in found.items():
        for name, by_stages in kernels.items():
            (one, more) = (by_stages.pop("1"), *by_stages.values())
            assert one <= SHARED_MEMORY[card], f"{name} on {card}"
            assert more > one, f"{name} on {card}: stages change nothing"
    assert max(found["mi300x"]["gemm"].values()) > SHARED_MEMORY["mi300x"], "as an H200 has it, it would not fit"
    for card, kernels in chosen.items():
        assert max(kernels.values()) <= SHARED_MEMORY[card], f"{kernels} on {card}"
        assert 2 * kernels["gemm"] <= SHARED_MEMORY[card], "two programs a multiprocessor"
    assert max(chunked.values()) <= SHARED_MEMORY["a100"], f"{chunked}"
    assert len(in_fp8) == 4
    assert max(in_fp8.values()) <= SHARED_MEMORY["l4"], f"{in_fp8}"


@pytest.mark.parametrize(
    ("kernels", "least"), [("quantized", 50), ("experts", 20), ("latent", 12), ("lora", 32), ("drafts", 10)]
)
def test_kernels_compile_for_an_h200(kernels: str, least: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", f"tests.ops.triton.compile_{kernels}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= least
    assert max(found.values()) <= 227 << 10, found
