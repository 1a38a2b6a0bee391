"""Whole prompts side by side in a step, each read out in the place where it stands."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from quire.config.resolved import StepLimits
from quire.core.plan import Admission, StepPlan
from quire.core.pooling_params import PoolingParams
from quire.core.request import NO_ANSWER
from quire.layers.batch import Batch
from quire.models.registry import describe
from quire.worker.pooling_worker import PoolingWorker

_SHAPE: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 2,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "intermediate_size": 4,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}


class Echo(nn.Module):
    """The hidden state of a token is its id and its position; scores are its first token, and its tokens of a second
    text."""

    def __init__(self, architecture: str = "BertModel") -> None:
        super().__init__()
        self.spec = describe({**_SHAPE, "architectures": [architecture]}, "config.json")
        self.joint = None
        self.types = torch.zeros(0)

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        self.types = torch.zeros_like(input_ids) if batch.types is None else batch.types
        return torch.stack([input_ids, positions], dim=1).float()

    def classify(self, hidden: Tensor, starts: Tensor) -> Tensor:
        sums = torch.segment_reduce(self.types.float(), "sum", offsets=starts, axis=0)
        return torch.stack([hidden[starts[:-1], 0], sums], dim=1)


def worker(model: Echo) -> PoolingWorker:
    return PoolingWorker(model, StepLimits(8, 64, 64, whole_prompts=True), torch.float32, torch.device("cpu"))  # type: ignore[arg-type]


def run(made: PoolingWorker, prompts: dict[int, tuple[list[int], PoolingParams]]) -> dict[int, list[list[float]]]:
    """By row."""
    admitted = [
        Admission(row, f"r{row}", 0, NO_ANSWER, tokens, len(tokens), 0, [[]], pooling=params)
        for row, (tokens, params) in prompts.items()
    ]
    counts = [len(tokens) for tokens, _ in prompts.values()]
    result = made.start(StepPlan(step=1, admitted=admitted, rows=list(prompts), counts=counts)).result()
    return {row: result.pooled[place] for place, row in enumerate(prompts)}


def test_vectors_of_texts_and_of_tokens() -> None:
    last, mean = (PoolingParams("embed", pooling, normalize=False) for pooling in ("last", "mean"))
    tokens = PoolingParams("token_embed", normalize=False)
    found = run(worker(Echo()), {3: ([5], last), 0: ([7, 8, 9], tokens), 5: ([1, 3], mean)})
    assert found == {3: [[5, 0]], 0: [[7, 0], [8, 1], [9, 2]], 5: [[pytest.approx(2.0), pytest.approx(0.5)]]}


def test_scores_of_pairs_go_with_their_own_types() -> None:
    pair, text = PoolingParams("classify", types=(0, 1, 1)), PoolingParams("classify")
    found = run(worker(Echo("BertForSequenceClassification")), {2: ([5, 6, 7], pair), 0: ([8, 9], text)})
    assert found == {2: [[5, 2]], 0: [[8, 0]]}


def test_a_step_that_only_releases_reads_nothing() -> None:
    made = worker(Echo())
    run(made, {0: ([5], PoolingParams())})
    assert made.start(StepPlan(step=2, released=[0])).result().pooled == {}
    assert not made.warm_up()
