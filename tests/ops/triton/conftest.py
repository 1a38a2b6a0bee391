"""Without a GPU, kernels run in Triton's interpreter, which must be known when they are defined: before any import."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
