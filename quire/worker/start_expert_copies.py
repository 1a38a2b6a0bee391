"""From a checkpoint to what brings copies of its experts into a rank's spare places."""

from collections.abc import Sequence

import torch

from quire.config.resolved import Resolved
from quire.layers.experts import Experts
from quire.layers.policy import WeightPolicy
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.language_model import LanguageModel
from quire.models.load import expected_tensors, load_weights
from quire.models.loading.checkpoint import open_described
from quire.models.loading.described import DescribedModel
from quire.models.random_weights import WEIGHTS_SEED, RandomWeights
from quire.spec.experts import ExpertsSpec
from quire.spec.rank import some_experts
from quire.worker.expert_copies import ExpertCopies
from quire.worker.weight_methods import method_of, schemes_of, shares_of


def start_expert_copies(
    described: DescribedModel,
    resolved: Resolved,
    model: LanguageModel | FallbackDecoder,
    device: torch.device,
    layers: range,
) -> ExpertCopies | None:
    """What brings copies of experts into places of these layers while the model serves, if it has any for them."""
    if not resolved.spare_experts:
        return None
    matched, dtype, host = described.matched, getattr(torch, resolved.dtype), torch.device("cpu")
    whole, schemes = matched.spec, schemes_of(matched, resolved)
    method = method_of(matched, resolved, dtype, device, None)  # which decides as for the device
    policy = WeightPolicy(dtype, host, method, pinned=device.type == "cuda")

    def read(layer: int, experts: Sequence[int]) -> Experts:
        mlp = whole.layers[layer].mlp
        assert isinstance(mlp, ExpertsSpec), f"layer {layer} has experts"
        spec = some_experts(mlp, experts)
        incoming = Experts(spec, policy)
        if resolved.random_weights:
            load_weights(incoming, RandomWeights(expected_tensors(incoming), dtype, host, WEIGHTS_SEED))
        else:  # mapped anew: pages of the mapping that places were filled from may have been written to
            shares = shares_of((*spec.up.tensors(), *spec.down.tensors()), schemes)
            load_weights(incoming, open_described(described, shares))
        return incoming

    held = [[part for part in layer.modules() if isinstance(part, Experts)] for layer in model.layers]
    return ExpertCopies({layers.start + place: found[0] for place, found in enumerate(held) if found}, read, device)
