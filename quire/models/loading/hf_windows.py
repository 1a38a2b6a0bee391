"""Which layers of a config.json look back only so far: one window, or None, for each layer."""

from quire.core.errors import CheckpointError
from quire.models.loading.hf_fields import HFFields

Windows = tuple[int | None, ...]


def layer_windows(fields: HFFields, num_layers: int, max_position: int) -> Windows:
    """The sliding window of each layer; None attends to everything."""
    window = fields.size_or_none("sliding_window", least=0) or None
    if window is not None and (window >= max_position or not fields.flag("use_sliding_window", True)):
        window = None
    if fields.has("layer_types"):
        return _by_type(fields, num_layers, window)
    if window is None:
        return (None,) * num_layers
    # every so-many-th layer attends to everything; families whose configs leave that to their code have a default
    return _by_rule(fields, fields.size_or_none("sliding_window_pattern"), num_layers, window)


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
