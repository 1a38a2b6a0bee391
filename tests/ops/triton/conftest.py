"""Without a GPU, kernels run in Triton's interpreter; it asks for that when kernels are defined, so before any import."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
