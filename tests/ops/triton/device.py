"""Where kernels are tested: on a GPU where there is one, else in Triton's interpreter."""

from importlib.util import find_spec

import pytest
import torch

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton has no wheel for this platform")

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""How far from the reference a result of order 1 may lie."""
