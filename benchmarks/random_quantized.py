"""Weights of a public shape in a quantized format, as random codes made on the device: no checkpoint is needed.

Norms, embeddings and, but for GGUF's formats, the head stay in 16 bits, as such checkpoints have them.
"""

import torch
from torch import Tensor, nn

from quire.bench.kernels.quantized_cases import FORMS, random_matrix
from quire.layers.quant.base import LinearMethod, Weight
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.matrix_buffers import MatrixBuffers
from quire.layers.stored import StoredTensor
from quire.spec.matrix import MatrixSpec, Part

Q4_K_M = "q4_k_m"
FORMATS = (*FORMS, Q4_K_M)


class RandomQuantizedWeight(Weight):
    """Neighbouring parts of one form are one matrix; what is loaded for them is not looked at."""

    def __init__(self, matrix: MatrixSpec, forms: list[str], dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(matrix, dtype, device)
        runs: list[tuple[str, int]] = []
        for form, part in zip(forms, matrix.parts, strict=True):
            if runs and runs[-1][0] == form:
                runs[-1] = (form, runs[-1][1] + part.rows)
            else:
                runs.append((form, part.rows))
        made = (random_matrix(form, rows, matrix.columns, device) for form, rows in runs)
        self._runs = nn.ModuleList(MatrixBuffers(each, device, pinned=False) for each in made)

    def forward(self, x: Tensor) -> Tensor:
        outputs = [run(x) for run in self._runs]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output if self.bias is None else output + self.bias

    def rows(self, ids: Tensor) -> Tensor:
        (run,) = self._runs
        return run.rows(ids, self._dtype)

    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        """Its codes are there already."""


class RandomQuantizedMethod(LinearMethod):
    def __init__(self, name: str, layers: int, dtype: torch.dtype) -> None:
        self._name = name
        self._layers = layers
        self._dtype = dtype

    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        forms = [self._form(matrix, part) for part in matrix.parts]
        if None in forms:
            return DenseMethod(self._dtype).create(matrix, device, pinned=pinned)
        return RandomQuantizedWeight(matrix, [form for form in forms if form], self._dtype, device)

    def _form(self, matrix: MatrixSpec, part: Part) -> str | None:
        in_ggml = self._name.startswith("q")
        if matrix.layer is None:
            is_head = "lm_head" in part.name
            return ("q6_k" if self._name == Q4_K_M else self._name) if in_ggml and is_head else None
        if self._name != Q4_K_M:
            return self._name
        takes_more = part.name.endswith(("v_proj", "down_proj")) and _has_more_bits(matrix.layer, self._layers)
        return "q6_k" if takes_more else "q4_k"


def _has_more_bits(layer: int, layers: int) -> bool:
    """The layers in which Q4_K_M gives two matrices 6 bits: the first and last eighth, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def make_random(name: str, layers: int) -> None:
    """Have models that are built from now on in this process hold such weights."""
    from quire.worker import start_model

    def method_of(matched: object, resolved: object, dtype: torch.dtype, *rest: object) -> LinearMethod:
        return RandomQuantizedMethod(name, layers, dtype)

    assert hasattr(start_model, "method_of"), "whoever decides how a model's weights are held has another name now"
    start_model.method_of = method_of
