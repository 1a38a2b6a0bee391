"""What a Worker of a pipeline's last stage does otherwise: hidden states come from the stage before, and sampled tokens
go back to the first one."""

from collections.abc import Callable

from torch import Tensor

from quire.layers.batch import Batch
from quire.models.language_model import LanguageModel
from quire.parallel.pipeline import Pipeline
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import SampledTokens
from quire.worker.stage_stream import StageStream

Sample = Callable[[Tensor, Tensor, Tensor, SamplingMode], SampledTokens]


class LastStage:
    """Of one rank."""

    def __init__(self, model: LanguageModel, pipeline: Pipeline, stream: StageStream) -> None:
        self.pipeline = pipeline
        self.stream = stream
        self._model = model

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """In place of the model's own."""
        x = self.stream.receive(len(input_ids), batch.taps)
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
