"""Which layers of a config.json look back only so far: one window, or None, for each layer."""

from quire.core.errors import CheckpointError
from quire.models.loading.hf_fields import HFFields

Windows = tuple[int | None, ...]

# Every so-many-th layer attends to everything, in families whose config leaves the rule to their code.
_FULL_EVERY = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "cohere2": 4}


def layer_windows(fields: HFFields, model_type: str, num_layers: int, max_position: int) -> Windows:
    """The sliding window of each layer; empty when every layer attends to everything."""
    window = fields.size_or_none("sliding_window", least=0) or None
    if window is not None and (window >= max_position or not fields.flag("use_sliding_window", True)):
        window = None
    if fields.has("layer_types"):
        windows = _by_type(fields, num_layers, window)
    elif window is None:
        return ()
    else:
        every = fields.size_or_none("sliding_window_pattern") or _FULL_EVERY.get(model_type)
        windows = _by_rule(fields, every, num_layers, window)
    return windows if any(windows) else ()


def _by_type(fields: HFFields, num_layers: int, window: int | None) -> Windows:
    kinds = fields.values["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise CheckpointError(f"{fields.source} must give layer_types as a list of {num_layers} names, one a layer.")
    known: dict[object, int | None] = {"full_attention": None, "sliding_attention": window}
    for kind in kinds:
        if not isinstance(kind, str) or kind not in known:
            raise CheckpointError(
                f"{fields.source} has a layer of type {kind!r}; quire knows {', '.join(map(str, known))}."
            )
    return tuple(known[kind] for kind in kinds)


def _by_rule(fields: HFFields, every: int | None, num_layers: int, window: int) -> Windows:
    if every is not None:
        return tuple(None if (layer + 1) % every == 0 else window for layer in range(num_layers))
    # Qwen's field: the layers below it attend to everything.
    first = fields.size_or_none("max_window_layers", least=0) or 0
    return tuple(None if layer < first else window for layer in range(num_layers))
