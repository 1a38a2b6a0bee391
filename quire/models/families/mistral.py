"""Mistral: Llama's wiring; where the config has a sliding window, every layer looks back only that far."""

from quire.layers.weights import WeightPolicy
from quire.models.decoder import Decoder
from quire.models.families import llama
from quire.models.loading.hf_config import HFShape


def build(shape: HFShape, policy: WeightPolicy) -> Decoder:
    """The windows are in the shape; nothing else differs."""
    return llama.build(shape, policy)
