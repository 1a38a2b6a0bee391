"""What a Worker of a pipeline's last stage does otherwise: hidden states come from the stage before, and sampled tokens
go back to the first one."""

from collections.abc import Callable

import torch
from torch import Tensor

from quire.layers.batch import Batch
from quire.models.language_model import LanguageModel
from quire.parallel.pipeline import Pipeline
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import SampledTokens

Sample = Callable[[Tensor, Tensor, Tensor, SamplingMode], SampledTokens]


class LastStage:
    """Of one rank."""

    def __init__(self, model: LanguageModel, pipeline: Pipeline, dtype: torch.dtype, device: torch.device) -> None:
        """Hidden states between stages are of this `dtype`."""
        self.pipeline = pipeline
        self._model = model
        self._dtype = dtype
        self._device = device

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """In place of the model's own."""
        width = self._model.spec.hidden_size
        x = self.pipeline.receive(len(input_ids), width, self._dtype, self._device)
        return self._model.forward_from(x, positions, batch)


class ReturningSampler:
    """In place of a Sampler: tokens that it draws are on their way to the first stage when it returns."""

    def __init__(self, sample: Sample, pipeline: Pipeline) -> None:
        self._sample = sample
        self._pipeline = pipeline

    def sample(self, logits: Tensor, rows: Tensor, positions: Tensor, mode: SamplingMode) -> SampledTokens:
        sampled = self._sample(logits, rows, positions, mode)
        self._pipeline.return_tokens(sampled.tokens)
        return sampled
