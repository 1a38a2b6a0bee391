"""Decisions of `resolve` about experts that are spread over ranks, and about copies of them."""

from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.parallel import ParallelConfig
from quire.config.resolved import Choice
from quire.core.errors import ConfigError
from quire.core.ggml_types import PACKED
from quire.spec.experts import ExpertsSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.quantization import WeightScheme

_STEPS = 3000
"""A minute or two of decoding: long enough that the load is no accident, and that reading copies costs next to
nothing."""


def check_experts(asked: EngineConfig, model: ModelFacts) -> None:
    """Raise a ConfigError unless experts can be spread, and copied, this way."""
    parallel = asked.parallel
    if parallel.eplb_step_interval is not None and not parallel.num_redundant_experts:
        raise ConfigError(
            f"--eplb-step-interval is {parallel.eplb_step_interval}, but there are no copies of experts that could "
            "follow the load; give --num-redundant-experts too, or leave it out."
        )
    if parallel.enable_expert_parallel:
        _check_spread(parallel, model)
    if parallel.num_redundant_experts:
        _check_copies(parallel, model)


def decide_copies(asked: ParallelConfig, choices: list[Choice]) -> tuple[int, int]:
    """Places of each rank for copies of experts, and the steps after which copies follow the load."""
    if not asked.num_redundant_experts:
        return 0, 0
    spare, interval = asked.num_redundant_experts // asked.expert_ranks, asked.eplb_step_interval or _STEPS
    reason = f"asked for: in every layer with experts; they follow the load every {interval:,} steps"
    choices.append(Choice("num_redundant_experts", f"{spare:,} a rank", reason))
    return spare, interval


def _check_spread(parallel: ParallelConfig, model: ModelFacts) -> None:
    size = parallel.expert_ranks
    if not model.spec.has_experts:
        raise ConfigError(f"--enable-expert-parallel spreads experts, and {model.name} has none; leave it out.")
    if size == 1:
        raise ConfigError(
            "--enable-expert-parallel spreads experts over the ranks of --tensor-parallel-size, which is 1; raise it, "
            "or --data-parallel-size, whose ranks attend each to sequences of their own, or leave it out."
        )
    fewest = _fewest_experts(model)
    if size > fewest:
        raise ConfigError(
            f"--enable-expert-parallel spreads {fewest} experts over {_spread_over(parallel)} ranks, of which "
            f"some would have none; use at most {fewest}, or leave it out."
        )


def _check_copies(parallel: ParallelConfig, model: ModelFacts) -> None:
    copies, ranks = parallel.num_redundant_experts, parallel.expert_ranks
    if not parallel.enable_expert_parallel:
        raise ConfigError(
            f"--num-redundant-experts is {copies}, but only whole experts can be copied, and every rank has some of "
            "each; give --enable-expert-parallel too, or leave it out."
        )
    if copies % ranks:
        raise ConfigError(
            f"--num-redundant-experts is {copies}, which {_spread_over(parallel)} does not divide, and all ranks "
            f"have equally many; use {copies - copies % ranks} or {copies + ranks - copies % ranks}."
        )
    fewest = _fewest_experts(model)
    most = ranks * (fewest - -(-fewest // ranks))
    if copies > most:
        raise ConfigError(
            f"--num-redundant-experts is {copies}, but with {most} every one of {ranks} ranks has each of {fewest} "
            f"experts; use at most {most}."
        )
    for layer in model.spec.layers:
        if isinstance(layer.mlp, ExpertsSpec):
            for matrix in (layer.mlp.up, layer.mlp.down):
                _check_alike(matrix, model)


def _check_alike(matrix: MatrixSpec, model: ModelFacts) -> None:
    """An expert takes the place of any other only if their matrices are held in the same format."""
    first: dict[str, Part] = {}
    for part in matrix.parts:
        role, _, _ = part.role.partition(".")  # the number of an expert that is a tensor of its own
        like = first.setdefault(role, part)
        formats = [_format(model, each) for each in (like, part)]
        if formats[0] != formats[1]:
            raise ConfigError(
                f"--num-redundant-experts copies experts into each other's places, but {like.name} and {part.name} "
                f"are stored in different formats ({formats[0]} and {formats[1]}); leave it out, or take a checkpoint "
                "whose experts are all in one."
            )


def _format(model: ModelFacts, part: Part) -> WeightScheme | str:
    """Plain numbers are converted to those that are computed in, whatever they are."""
    kind = model.kind(part.weight_name)
    return model.schemes.get(part.name) or (kind if kind in PACKED else "plain numbers")


def _spread_over(parallel: ParallelConfig) -> str:
    name = "data" if parallel.attention_ranks > 1 else "tensor"
    return f"--{name}-parallel-size {parallel.expert_ranks}"


def _fewest_experts(model: ModelFacts) -> int:
    return min(layer.mlp.num_experts for layer in model.spec.layers if isinstance(layer.mlp, ExpertsSpec))
