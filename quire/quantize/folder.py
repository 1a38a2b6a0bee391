"""Writing a quantized folder: layer by layer, each calibrated on what the quantized layers before it give."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from quire.core.errors import CheckpointError
from quire.quantize.beside import write_beside
from quire.quantize.compressed_tensors import FolderPlan, plan_folder
from quire.quantize.folder_config import folder_config
from quire.quantize.inputs import Inputs
from quire.quantize.layer_inputs import LayerInputs, watching
from quire.quantize.layer_tensors import LayerTensors
from quire.quantize.layerwise import LayerwiseModel, Text
from quire.quantize.options import PLAIN, QuantizeOptions
from quire.quantize.output_head import written_spec
from quire.quantize.partial_folder import PartialFolder
from quire.quantize.room import check_room, folder_bytes
from quire.quantize.source import Source
from quire.quantize.texts import calibration_bytes, calibration_pieces
from quire.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]
"""Told how many of how many files are done."""
_PLAIN_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def write_folder(
    source: Source, tokenizer: Tokenizer, out: Path, options: QuantizeOptions, device: torch.device, progress: Progress
) -> None:
    """The model in `out`, which must not be there. A run that was stopped is taken up again."""
    if source.model.is_gguf and source.stacked is not None:
        raise CheckpointError(
            f"{source.path} is a {source.spec.architecture} with {source.stacked}, of which quire writes folders only "
            "from folders; give the model's safetensors files."
        )
    plan = plan_folder(written_spec(source, options), options)
    dtype = _PLAIN_DTYPES[options.scheme] if options.scheme in PLAIN else source.dtype
    num_layers = source.spec.num_layers
    has_head = plan.spec.head is not None and plan.spec.head.parts[0].name in plan.schemes
    num_files = num_layers + (2 if has_head else 1)
    check_room(out, folder_bytes(plan, dtype))
    folder = PartialFolder(out, num_files, _record(source, options))
    tensors = LayerTensors(source, plan, options, dtype, device)
    if not folder.has(0):
        folder.write(0, tensors.ends())
    progress(1, num_files)
    calibration = Calibration(source, tokenizer, options, plan, device) if options.is_calibrated else None
    for index in range(num_layers):
        if not folder.has(index + 1):
            inputs = None if calibration is None else calibration.inputs(index)
            folder.write(index + 1, tensors.of_layer(index, inputs))
        if calibration is not None:
            calibration.advance(index, folder)
        progress(index + 2, num_files)
    if has_head:
        if not folder.has(num_layers + 1):
            folder.write(num_layers + 1, tensors.head(None if calibration is None else calibration.head_inputs()))
        progress(num_files, num_files)
    write_beside(folder, source, tokenizer)
    folder.finish(folder_config(source, dtype, plan))


class Calibration:
    """The calibration text on its way through the layers."""

    def __init__(
        self, source: Source, tokenizer: Tokenizer, options: QuantizeOptions, plan: FolderPlan, device: torch.device
    ) -> None:
        self._source = source
        self._plan = plan
        self._model = LayerwiseModel(source.spec, source.checkpoint, device)
        pieces = calibration_pieces(tokenizer, options.calibration, source.spec.max_position)
        self._texts: list[Text] = self._model.begin(pieces)

    def inputs(self, index: int) -> LayerInputs:
        """What the matrices of a layer see of it."""
        layer = self._model.layer(index, self._source.checkpoint)
        with watching(layer) as seen:
            for text in self._texts:
                self._model.run(layer, text)
        return seen

    def head_inputs(self) -> Inputs:
        """What the output head sees of it, behind the last layer."""
        seen = Inputs(self._source.spec.hidden_size, self._texts[0].x.device)
        for text in self._texts:
            seen.add(self._model.hidden(text))
        return seen

    def advance(self, index: int, folder: PartialFolder) -> None:
        """Through a layer as it was written."""
        written = folder.layer(index, self._source.spec, self._plan.schemes)
        self._model.advance(self._model.layer(index, written, self._plan.schemes, expand=True), self._texts)


def _record(source: Source, options: QuantizeOptions) -> dict[str, Any]:
    """All that the files depend on."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
    given["ignore"] = list(options.ignore)
    if options.calibration is not None:
        given["calibration"] = hashlib.sha256(calibration_bytes(options.calibration)).hexdigest()
    return {"model": source.path.name, "tensor_bytes": source.checkpoint.num_bytes, **given}
