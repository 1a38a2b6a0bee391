"""From a spec to a model without weights."""

from quire.layers.policy import WeightPolicy
from quire.models.language_model import LanguageModel
from quire.models.offload import offload_layers
from quire.spec.model import ModelSpec


def build_model(spec: ModelSpec, policy: WeightPolicy) -> LanguageModel:
    """The modules that a spec describes; layers that stay in host memory compute on the policy's device too."""
    model = LanguageModel(spec, policy)
    offload_layers(model, policy.offloaded, policy.device)
    return model
