"""Ways of saying that a device is full."""

import gc
import weakref

import pytest
import torch

from quire.core.errors import OutOfDeviceMemory
from quire.worker.out_of_memory import telling_out_of_memory


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_all_become_one_error(error: Exception) -> None:
    with pytest.raises(OutOfDeviceMemory) as caught:
        telling_out_of_memory(lambda: _raise(error))
    assert str(caught.value) == str(error)


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        telling_out_of_memory(lambda: _raise(RuntimeError("CUDA error: an illegal memory access was encountered")))
    assert telling_out_of_memory(lambda: 3) == 3


def test_the_error_holds_no_tensor_of_the_step() -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def compute() -> None:
        large = torch.ones(4)
        held.append(weakref.ref(large))
        raise torch.OutOfMemoryError("CUDA out of memory")

    gc.disable()  # the memory must be free at once, not when cycles are looked for
    try:
        try:
            telling_out_of_memory(compute)
        except OutOfDeviceMemory:
            assert held[0]() is None
        else:
            pytest.fail("nothing was raised")
    finally:
        gc.enable()
