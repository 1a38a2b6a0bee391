"""Rotary positions of a GGUF model as the fields of a config.json.

GGUF keeps factors that stretch single frequencies as tensors: one set for Llama 3 (`rope_freqs`), two for Phi-3.
A config.json has a way to say both: `longrope`, whose two sets are the same for Llama 3.
"""

import math
from collections.abc import Sequence
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFHeader, read_floats
from quire.models.loading.gguf_metadata import GGUFMetadata

FREQUENCIES, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
FACTOR_TENSORS = (FREQUENCIES, LONG, SHORT)
"""Tensors that become part of the config and are no weights."""
_USUAL_THETA = 10_000.0


def rope_fields(read: GGUFMetadata, headers: Sequence[GGUFHeader], head_dim: int, max_position: int) -> dict[str, Any]:
    """`rope_theta`, and where the file says so `partial_rotary_factor` and `rope_scaling`."""
    fields: dict[str, Any] = {"rope_theta": read.number_or_none("rope.freq_base") or _USUAL_THETA}
    size = _turned(read, head_dim)
    if size < head_dim:
        fields["partial_rotary_factor"] = turned_share(read, head_dim)
    scaling = _by_factors(read, headers, size // 2, max_position) or _by_rule(read, max_position)
    return fields if scaling is None else fields | {"rope_scaling": scaling}


def turned_share(read: GGUFMetadata, head_dim: int) -> float:
    """The share of a head that positions turn, which is all of it unless the file says otherwise."""
    size = _turned(read, head_dim)
    share = size / head_dim
    # Whoever multiplies and rounds down must get the size back.
    return share if int(share * head_dim) == size else math.nextafter(share, 1.0)


def _turned(read: GGUFMetadata, head_dim: int) -> int:
    size = read.size_or_none("rope.dimension_count") or head_dim
    if size > head_dim or size % 2:
        raise CheckpointError(f"{read.source} turns {size} of {head_dim} dimensions of a head, which cannot be.")
    return size


def _by_factors(
    read: GGUFMetadata, headers: Sequence[GGUFHeader], count: int, max_position: int
) -> dict[str, Any] | None:
    one, long, short = (_factors(headers, name, count) for name in FACTOR_TENSORS)
    if one is None and long is None and short is None:
        return None
    if one is not None:
        long = short = one
        attention_factor: float | None = 1.0
    elif long is None or short is None:
        raise CheckpointError(f"{read.source} has only one of {LONG} and {SHORT}; convert the model again.")
    else:
        attention_factor = read.number_or_none("rope.scaling.attn_factor")
    original = read.size_or_none("rope.scaling.original_context_length") or max_position
    scaling = {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": original,
    }
    return scaling if attention_factor is None else scaling | {"attention_factor": attention_factor}


def _by_rule(read: GGUFMetadata, max_position: int) -> dict[str, Any] | None:
    kind = read.text_or_none("rope.scaling.type") or "linear"
    # Zero is how some files say that nothing is scaled.
    factor = None if read.get("rope.scaling.factor") == 0 else read.number_or_none("rope.scaling.factor")
    if kind == "none" or (kind == "linear" and factor in (None, 1.0)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn" or factor is None:
        raise CheckpointError(
            f"{read.source} scales rotary positions by {kind!r}{'' if factor else ' without a factor'}; "
            "quire reads none, linear, yarn with a factor, and factors stored as tensors."
        )
    original = read.size_or_none("rope.scaling.original_context_length") or max_position
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    for name in ("beta_fast", "beta_slow"):
        value = read.number_or_none(f"rope.scaling.yarn_{name}")
        scaling |= {} if value is None else {name: value}
    sharper = read.number_or_none("rope.scaling.yarn_log_multiplier")
    if sharper:  # of models with latent attention, whose configs have the same number in both places
        return scaling | dict.fromkeys(("mscale", "mscale_all_dim"), round(10 * sharper, 6))
    times = read.number_or_none("rope.scaling.attn_factor")
    if times not in (None, 1.0):
        # GGUF multiplies YaRN's own factor, a config.json replaces it.
        scaling["attention_factor"] = times * (1.0 + 0.1 * math.log(max(1.0, factor)))
    return scaling


def _factors(headers: Sequence[GGUFHeader], name: str, count: int) -> list[float] | None:
    for header in headers:
        for span in header.tensors:
            if span.name == name:
                factors = read_floats(header, span, count)
                if not all(0.0 < factor < math.inf for factor in factors):
                    raise CheckpointError(f"{header.path}: {name} must hold numbers above 0.")
                return factors
    return None
