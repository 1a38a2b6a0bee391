"""The decision of `resolve` about LoRA adapters: what room is kept for them."""

from quire.config.bounds import check_obstacles
from quire.config.cutting import fullest_place
from quire.config.decide_compute import spread_by
from quire.config.decide_numbers import Numbers
from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.memory import stages_of
from quire.config.resolved import Choice, LoraRoom
from quire.config.sizes import decimal_size
from quire.core.errors import ConfigError
from quire.spec.lora import EMBEDDING, EXPERTS, HEAD, LAYERS, PAGE_RANK, PageLayout, joined_experts, page_layout
from quire.spec.rank import rank_spec
from quire.spec.stage import stage_spec

_FLOAT = 4
_MOST_PARTS = 3
"""Of a matrix: q, k and v."""


def decide_lora(
    asked: EngineConfig, numbers: Numbers, choices: list[Choice], *, batch_invariant: bool
) -> LoraRoom | None:
    """None: there are no adapters, and nothing is kept for them."""
    lora = asked.lora
    if not lora.enable_lora:
        return None
    obstacles = {
        "transformers' modules compute this model": numbers.uses_transformers,
        "--compile is on, and leaves no place for adapters between its pieces": asked.model.compile,
        "--batch-invariant is on, and tiles of adapters follow the batch": batch_invariant,
    }
    check_obstacles("enable_lora", obstacles)
    held = _held_dtype(numbers)
    targets = tuple(lora.targets or (LAYERS,))
    _check_targets(asked, numbers.model, targets)
    page = _largest_page(asked, numbers.model, frozenset(targets))
    pages = lora.in_one_step * -(-lora.max_lora_rank // PAGE_RANK)
    room = LoraRoom(lora.in_one_step, lora.max_lora_rank, lora.on_host, pages, targets, page.elements, held)
    size = decimal_size(room.num_bytes)
    most = f"{lora.in_one_step} adapters of rank {lora.max_lora_rank}, or more of lower"
    told = f"{pages} pages of {PAGE_RANK} ranks, {size}: {most}"
    choices.append(Choice("max_loras", f"{lora.in_one_step}", told))
    return room


def _check_targets(asked: EngineConfig, model: ModelFacts, targets: tuple[str, ...]) -> None:
    """Ranks have their parts of layers; words and head are cut by vocabulary, and experts may be spread whole."""
    if EXPERTS in targets and any(joined_experts(model.spec)):
        raise ConfigError(
            f"--lora-targets has experts, but {model.name} stores those of a layer as one tensor, which no adapter can "
            "change; leave experts out."
        )
    spread = spread_by(asked)
    wrong = {EMBEDDING, HEAD, *([EXPERTS] if asked.parallel.enable_expert_parallel else [])}.intersection(targets)
    if spread is not None and wrong:
        raise ConfigError(
            f"--lora-targets has {' and '.join(sorted(wrong))}, whose adapters are for models on one device so far, "
            f"but {spread}; leave one out."
        )


def _largest_page(asked: EngineConfig, model: ModelFacts, targets: frozenset[str]) -> PageLayout:
    """That of the rank with the most to keep; all ranks keep as many pages."""
    parts = [model.spec]
    if asked.parallel.pipeline_parallel_size > 1:
        parts = [stage_spec(model.spec, layers) for layers in stages_of(model, asked.parallel)]
    place = fullest_place(model, asked.parallel)
    return max((page_layout(rank_spec(part, place), targets) for part in parts), key=lambda page: page.elements)


def _held_dtype(numbers: Numbers) -> str:
    """What adapters are computed in; on the native core of a CPU, 16 bits where the model itself has no more."""
    model, holding = numbers.model, numbers.holding
    kinds = {model.kind(matrix.weight(part).name) for matrix in model.spec.matrices() for part in matrix.parts}
    return holding.dtype if not holding.cpu_core or "float32" in kinds else "bfloat16"


def lora_step_bytes(room: LoraRoom | None, num_tokens: int) -> int:
    """What a step takes between A and B."""
    return 0 if room is None else num_tokens * _MOST_PARTS * room.pages_each * PAGE_RANK * _FLOAT


def lora_bytes(room: LoraRoom | None, num_tokens: int) -> int:
    """All that adapters take of a device."""
    return 0 if room is None else room.num_bytes + lora_step_bytes(room, num_tokens)


def refuse_lora(asked: EngineConfig, name: str) -> None:
    """For models that read texts."""
    if asked.lora.enable_lora:
        raise ConfigError(f"--enable-lora is for models that generate, and {name} reads texts; leave it out.")
