"""Labels: what a classifier sorts texts into, how its raw scores become what clients read, and who has none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quire.config.facts import ModelFacts
from quire.core.errors import InvalidRequest
from quire.core.pooling import PoolingTask, Readout
from quire.models.loading.sentence_settings import SentenceSettings

_TASKS_OF: dict[str, tuple[PoolingTask, ...]] = {
    "pooling": ("embed",),
    "normalize": ("embed", "token_embed"),
    "dimensions": ("embed", "token_embed"),
    "prompt_name": ("embed", "token_embed"),
    "use_activation": ("classify", "score"),
}
"""Which tasks a setting is for."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of one model; none for a model that is no classifier."""

    model: str
    """Named in errors."""
    names: tuple[str, ...] = ()
    multi_label: bool = False
    """Whether several may fit a text at once."""
    plain_scores: bool = False
    """Whether pairs of texts are scored by the raw number, as some cross-encoders were made for."""
    regression: bool = False
    """Whether the numbers of texts are what the model was trained to give, and no measure of how well a label fits."""

    takes_instruction: bool = False
    """Whether pairs are read within a prompt that says what a document is to do for a query."""

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def usual_task(self) -> PoolingTask:
        """What is read off a text where nobody says."""
        return "classify" if self.names else "token_embed"

    def probabilities(self, scores: Sequence[float]) -> list[float]:
        """Of each label: they sum up to 1, or stand each on its own where there is one or several may fit. A model that
        was trained for numbers gives those as they are.
        """
        if self.regression:
            return list(scores)
        if self.multi_label or len(scores) == 1:
            return [_sigmoid(score) for score in scores]
        highest = max(scores)
        weights = [math.exp(score - highest) for score in scores]
        total = sum(weights)
        return [weight / total for weight in weights]

    def score(self, scores: Sequence[float], *, use_activation: bool = True) -> float:
        """How well a pair of texts fits together, by the model's only label."""
        [score] = scores
        return _sigmoid(score) if use_activation and not self.plain_scores else score

    def read(self, task: PoolingTask, scores: Sequence[float], *, use_activation: bool = True) -> list[float]:
        """What a task makes of a classifier's scores."""
        if task == "score":
            return [self.score(scores, use_activation=use_activation)]
        return self.probabilities(scores) if use_activation and task != "reward" else list(scores)

    def check(self, task: PoolingTask | Readout) -> None:
        """Raise an InvalidRequest unless the model can do the task."""
        if task in ("embed", "token_embed"):
            if self.names:
                raise InvalidRequest(
                    f"{self.model} is a classifier, whose hidden states are no embeddings; use classify or score, or "
                    "an embedding model",
                    field="model",
                )
        elif not self.names:
            raise InvalidRequest(
                f"{self.model} is no classifier and has no labels to {task} texts by; use a model that was trained for "
                "sequence classification",
                field="model",
            )
        elif task == "score":
            self.check_pairs()

    def check_settings(self, task: PoolingTask, **given: object) -> None:
        """Raise an InvalidRequest for a setting that is not None and that the task takes no notice of."""
        for name, value in given.items():
            if value is not None and task not in _TASKS_OF[name]:
                raise InvalidRequest(
                    f"{name} is given, and {task} takes no notice of it; leave it out, or use it with "
                    f"{' or '.join(_TASKS_OF[name])}",
                    field=name,
                )

    def check_activation(self, use_activation: bool | None) -> None:
        """Raise an InvalidRequest where scores are cosines, of which an activation makes nothing else."""
        if use_activation is not None and not self.names:
            raise InvalidRequest(
                f"use_activation is given, and {self.model} is no cross-encoder: its scores are cosines; leave it out",
                field="use_activation",
            )

    def check_instruction(self, instruction: str | None) -> None:
        """Raise an InvalidRequest where nothing would be made of it."""
        if instruction is not None and not self.takes_instruction:
            raise InvalidRequest(
                f"instruction is given, and {self.model} reads pairs without one; leave it out, or use Qwen3-Reranker "
                "with is_original_qwen3_reranker in its config.json",
                field="instruction",
            )

    def check_pairs(self) -> None:
        """Raise an InvalidRequest where pairs of texts get more than one number."""
        if len(self.names) > 1:
            raise InvalidRequest(
                f"{self.model} has {len(self.names)} labels, and a score is the number of a single one; use classify, "
                "or a model with one label",
                field="model",
            )


def labels_of(facts: ModelFacts, settings: SentenceSettings) -> Labels:
    """The labels of a model with these facts, and what the files beside it say of scores."""
    return Labels(
        facts.name,
        facts.labels,
        facts.multi_label,
        settings.plain_scores,
        facts.regression,
        takes_instruction=settings.has_reranker_prompt and bool(facts.labels),
    )


def only_pools(facts: ModelFacts) -> bool:
    """Whether a model reads texts and generates none: an encoder, a classifier, or one of texts and images alike."""
    return facts.spec.is_encoder or bool(facts.labels) or facts.spec.joint is not None


def _sigmoid(value: float) -> float:
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1 + grown)
