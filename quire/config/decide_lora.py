"""The decision of `resolve` about LoRA adapters: what room is kept for them."""

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Choice, LoraRoom
from quire.config.sizes import decimal_size
from quire.core.errors import ConfigError
from quire.spec.lora import LAYERS, PAGE_RANK, page_layout

_FLOAT = 4
_MOST_PARTS = 3
"""Of a matrix: q, k and v."""


def decide_lora(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    dtype: str,
    choices: list[Choice],
    *,
    cpu_core: bool,
    uses_transformers: bool,
    batch_invariant: bool,
) -> LoraRoom | None:
    """None: there are no adapters, and nothing is kept for them."""
    lora = asked.lora
    if not lora.enable_lora:
        return None
    obstacles = {
        "transformers' modules compute this model": uses_transformers,
        "--compile is on, and leaves no place for adapters between its pieces": asked.model.compile,
        "--speculative-config is given, and drafts are verified by the model alone": bool(
            asked.scheduler.speculative_config
        ),
        "--batch-invariant is on, and tiles of adapters follow the batch": batch_invariant,
    }
    found = next((obstacle for obstacle, is_there in obstacles.items() if is_there), None)
    if found is not None:
        raise ConfigError(f"--enable-lora cannot be kept here: {found}. Change that or leave --enable-lora out.")
    held = _held_dtype(model, dtype, cpu_core=cpu_core)
    targets = tuple(lora.targets or (LAYERS,))
    page = page_layout(model.spec, frozenset(targets))
    pages = lora.in_one_step * -(-lora.max_lora_rank // PAGE_RANK)
    room = LoraRoom(lora.in_one_step, lora.max_lora_rank, lora.on_host, pages, targets, page.elements, held)
    size = decimal_size(room.num_bytes)
    most = f"{lora.in_one_step} adapters of rank {lora.max_lora_rank}, or more of lower"
    told = f"{pages} pages of {PAGE_RANK} ranks, {size}: {most}"
    choices.append(Choice("max_loras", f"{lora.in_one_step}", told))
    return room


def _held_dtype(model: ModelFacts, dtype: str, *, cpu_core: bool) -> str:
    """What adapters are computed in; on the native core of a CPU, 16 bits where the model itself has no more."""
    kinds = {model.kind(matrix.weight(part).name) for matrix in model.spec.matrices() for part in matrix.parts}
    return dtype if not cpu_core or "float32" in kinds else "bfloat16"


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
