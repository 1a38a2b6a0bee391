"""Readouts: vectors of prompts that are read instead of continued, gathered as their chunks are computed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, segment_reduce
from torch.nn import functional

from quire.core.plan import Admission, StepPlan
from quire.core.pooling import Rows
from quire.core.pooling_params import PoolingParams
from quire.layers.batch import Alignment
from quire.layers.pooling import normalize
from quire.ops.upload import towards_host, upload

_SMOOTHED = 7
"""Positions of which an alignment takes the middle one by size."""


@dataclass(frozen=True, slots=True)
class PooledStep:
    """What a step read out, on its way to the host; to be looked at once the device is done with the step."""

    places: Sequence[int] = ()
    """In the batch, one for each of the vectors."""
    vectors: Tensor | None = None  # [places, size]
    tokens: dict[int, list[Tensor]] = field(default_factory=dict)
    """By place in the batch: vectors of all tokens of a prompt, chunk by chunk."""

    def rows(self) -> dict[int, Rows]:
        """By place in the batch."""
        vectors = [] if self.vectors is None else self.vectors.tolist()
        found: dict[int, Rows] = {place: [vector] for place, vector in zip(self.places, vectors, strict=True)}
        for place, chunks in self.tokens.items():
            found[place] = torch.cat(chunks).tolist()
        return found


@dataclass(slots=True)
class _Reading:
    """One row that is read out."""

    params: PoolingParams
    length: int
    chunks: list[Tensor] = field(default_factory=list)
    """Vectors of its tokens so far, on the host, where all of them were asked for."""

    def weighted(self, first: int, count: int) -> tuple[range, float]:
        """Which of the tokens from `first` on count in its vector, and how much each."""
        if self.params.pooling == "mean":
            return range(count), 1 / self.length
        wanted = (0 if self.params.pooling == "cls" else self.length - 1) - first
        return range(wanted, wanted + 1) if 0 <= wanted < count else range(0), 1.0


def aligned(weights: Tensor) -> Tensor:
    """[tokens, heads, positions] to [tokens, positions]: how much each token stands out at each position, smoothed over
    its neighbours and averaged over heads."""
    deviation, mean = torch.std_mean(weights, dim=0, keepdim=True, correction=0)
    standing_out = (weights - mean) / deviation
    reach = _SMOOTHED // 2
    if standing_out.shape[-1] > reach:
        padded = functional.pad(standing_out, (reach, reach), mode="reflect")
        standing_out = padded.unfold(-1, _SMOOTHED, 1).sort(dim=-1).values[..., reach]
    return standing_out.mean(dim=1)


class Readouts:
    """Of one worker. A vector is a weighted sum of hidden states, added up over the chunks of its prompt."""

    def __init__(self, num_rows: int, size: int, device: torch.device) -> None:
        self._shape = (num_rows, size)
        self._device = device
        self._readings: dict[int, _Reading] = {}
        self._sums: Tensor | None = None
        """[rows, size] in float32; made for the first readout."""

    @property
    def are_asked_for(self) -> bool:
        return bool(self._readings)

    def admit(self, admission: Admission) -> None:
        if admission.pooling is None:
            return
        self._readings[admission.row] = _Reading(admission.pooling, admission.num_prompt)
        if self._sums is None:
            self._sums = torch.zeros(self._shape, device=self._device)
        self._sums[admission.row].zero_()

    def release(self, row: int) -> None:
        self._readings.pop(row, None)

    def reset(self) -> None:
        """All rows are forgotten."""
        self._readings.clear()

    def alignment(self, plan: StepPlan) -> Alignment | None:
        """What is to be gathered where a row of the step is aligned. All have the model's own heads."""
        asked = (reading.params.heads for *_, reading in self._in_step(plan) if reading.params.readout == "align")
        heads = next(asked, None) if self._readings else None
        return None if heads is None else Alignment(heads)

    def take(
        self, plan: StepPlan, hidden: Tensor, lengths: Sequence[int], alignment: Alignment | None = None
    ) -> PooledStep:
        """`hidden` are those of all the step's tokens, `lengths` what each row has computed with it, `alignment` what
        its heads looked at."""
        if not self._readings:
            return PooledStep()
        self._add_up(plan, hidden, lengths)
        ended: list[tuple[int, int, _Reading]] = []
        tokens: dict[int, list[Tensor]] = {}
        for place, row, start, count, reading in self._in_step(plan):
            if reading.params.readout == "token_embed":
                reading.chunks.append(self._vectors_of_tokens(hidden[start : start + count], reading.params))
                if lengths[row] == reading.length:
                    tokens[place] = reading.chunks
            elif reading.params.readout == "align":
                assert alignment is not None, "the step gathered it"
                scores = torch.cat(alignment.scores, dim=1)[start : start + count, :, : reading.params.positions]
                reading.chunks.append(scores.softmax(dim=-1))
                if lengths[row] == reading.length:
                    tokens[place] = [towards_host(aligned(torch.cat(reading.chunks)))]
            elif lengths[row] == reading.length:
                ended.append((place, row, reading))
        places = [place for place, _, _ in ended]
        return PooledStep(places, self._vectors(ended) if ended else None, tokens)

    def _in_step(self, plan: StepPlan) -> Iterator[tuple[int, int, int, int, _Reading]]:
        """Place, row, first token and number of tokens of every row of the step that is read out."""
        start = 0
        for place, (row, count) in enumerate(zip(plan.rows, plan.counts, strict=True)):
            reading = self._readings.get(row)
            if reading is not None:
                yield place, row, start, count, reading
            start += count

    def _add_up(self, plan: StepPlan, hidden: Tensor, lengths: Sequence[int]) -> None:
        assert self._sums is not None
        rows: list[int] = []
        counts: list[int] = []
        tokens: list[int] = []
        weights: list[float] = []
        for _, row, start, count, reading in self._in_step(plan):
            wanted, weight = reading.weighted(lengths[row] - count, count)
            if wanted and reading.params.readout == "embed":
                rows.append(row)
                counts.append(len(wanted))
                tokens.extend(range(start + wanted.start, start + wanted.stop))
                weights.extend([weight] * len(wanted))
        if not rows:
            return
        chosen = hidden.index_select(0, upload(tokens, torch.int64, self._device)).float()
        weighted = chosen * upload(weights, torch.float32, self._device).unsqueeze(1)
        # a row stands once in a step, so that the order of additions is always the same
        parts = segment_reduce(weighted, "sum", lengths=upload(counts, torch.int64, self._device), unsafe=True)
        self._sums.index_add_(0, upload(rows, torch.int64, self._device), parts)

    def _vectors(self, ended: list[tuple[int, int, _Reading]]) -> Tensor:
        assert self._sums is not None
        vectors = self._sums.index_select(0, upload([row for _, row, _ in ended], torch.int64, self._device))
        are_unit = [reading.params.normalize for _, _, reading in ended]
        if any(are_unit):
            chosen = upload(are_unit, torch.bool, self._device).unsqueeze(1)
            vectors = torch.where(chosen, normalize(vectors), vectors)
        return towards_host(vectors)

    def _vectors_of_tokens(self, hidden: Tensor, params: PoolingParams) -> Tensor:
        vectors = hidden.float()
        return towards_host(normalize(vectors) if params.normalize else vectors)
