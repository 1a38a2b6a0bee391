"""From a model's spec to that of one pipeline stage: a run of its layers, and what stands before or behind them."""

from dataclasses import dataclass, replace

from quire.spec.model import EmbeddingSpec, ModelSpec


@dataclass(frozen=True, slots=True)
class StagePlace:
    """Which stage of how many, and which of the ranks that share its layers.

    Ranks are counted from the last stage on: the first one samples, and is the engine's own process.
    """

    stage: int
    stages: int
    tensor_rank: int
    tensor_ranks: int

    @property
    def is_first(self) -> bool:
        """Whether tokens enter here."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether tokens are sampled here."""
        return self.stage == self.stages - 1


def stage_place(rank: int, tensor_ranks: int, stages: int) -> StagePlace:
    """Where a rank stands."""
    from_last, tensor_rank = divmod(rank, tensor_ranks)
    return StagePlace(stages - 1 - from_last, stages, tensor_rank, tensor_ranks)


def stage_spec(spec: ModelSpec, layers: range, *, words_for_head: bool = False) -> ModelSpec:
    """The stage with these of the model's layers.

    The first embeds tokens and media; the last has the norm and the head, and the words where these are the head too,
    or where a head that drafts there looks them up (`words_for_head`).
    """
    is_first, is_last = layers.start == 0, layers.stop == spec.num_layers
    if is_first and is_last:
        return spec
    staged = replace(spec, layers=spec.layers[layers.start : layers.stop])
    if not is_last:
        staged = replace(staged, norm=None, head=None, tied=False, head_projection=None)
    if not is_first:
        staged = replace(
            staged,
            takes_tokens=False,
            keeps_words=is_last and words_for_head,
            embedding=EmbeddingSpec(words=spec.embedding.words),
            vision=None,
            audio=None,
        )
    return staged


def num_uncut_layers(spec: ModelSpec) -> int:
    """How many of the first layers are of one stage: those that are given vectors of the vision tower, which is there.

    They are three in published models, fewer than a stage has; to send the vectors on would be more work than it saves.
    """
    return max(1, 0 if spec.vision is None else len(spec.vision.deep))
