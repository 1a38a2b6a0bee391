"""From a GGUF header to the facts of a model, by way of the config.json that it stands for."""

from collections.abc import Sequence
from dataclasses import replace

from quire.config.facts import ModelFacts
from quire.core.errors import CheckpointError
from quire.models.loading.gguf_config import gguf_config
from quire.models.loading.gguf_header import GGUFHeader
from quire.models.loading.hf_facts import hf_facts


def gguf_facts(name: str, headers: Sequence[GGUFHeader]) -> ModelFacts:
    """Facts of the model called `name` whose file, or parts in order, have these headers."""
    source = str(headers[0].path)
    tensors = [tensor for header in headers for tensor in header.tensors]
    if not tensors:
        raise CheckpointError(f"{source} holds no tensors; it is a vocabulary or adapter, not a model.")
    facts = hf_facts(name, gguf_config(headers), tensors, source)
    # A config.json would give the dtype of the model that was converted; what matters is what it became.
    return replace(facts, dtype=next(iter(facts.weight_bytes)))
