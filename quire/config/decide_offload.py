"""Decision of `resolve`: which weights are not on the device while nobody asks for them."""

from dataclasses import dataclass

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.holding import Holding
from quire.config.memory import layer_bytes
from quire.config.resolved import Choice, LoraRoom
from quire.config.sizes import GIB, decimal_size
from quire.core.errors import ConfigError
from quire.spec.experts import ExpertsSpec
from quire.spec.lora import EXPERTS


@dataclass(frozen=True, slots=True)
class Offload:
    """What `--offload-gb` comes to."""

    layers: int = 0
    """The last ones, whose weights visit the device for each step."""
    expert_slots: int = 0
    """Experts of a layer that are on the device at a time; 0: all of them."""
    away: int = 0
    """Bytes of weights that need no room of the device."""


def decide_offload(
    asked: EngineConfig, model: ModelFacts, device: DeviceFacts, holding: Holding, choices: list[Choice]
) -> Offload:
    """Experts where the model has any, since few of them are asked for at a time; else its last layers. Of a CPU with
    the native core, experts that stay in the file which they are mapped from.
    """
    size = asked.model.offload_gb
    if not size:
        return Offload()
    experts = [layer.mlp for layer in model.spec.layers if isinstance(layer.mlp, ExpertsSpec)]
    if device.kind == "cpu":
        return _left_in_file(size, experts, model, device, holding, choices)
    if experts:
        return _slots(asked, experts, model, holding, choices)
    each = layer_bytes(model, holding, asked.parallel, model.spec.num_layers - 1)
    count = min(model.spec.num_layers, -(-int(size * GIB) // max(each, 1)))
    choices.append(Choice("offloaded_layers", f"{count}", f"{size:g} GiB asked for, {each / GIB:.3g} GiB a layer"))
    # one at a time is on the device, and the next on its way
    return Offload(layers=count, away=max(0, count - 2) * each)


def check_offload(offload: Offload, lora: LoraRoom | None) -> None:
    """Refuse what experts in host memory cannot do."""
    if offload.expert_slots and lora is not None and EXPERTS in lora.targets:
        raise ConfigError(
            "--offload-gb keeps experts in host memory, but --lora-targets has experts, whose adapters are added where "
            "all experts are on the device; leave one out."
        )


def _slots(
    asked: EngineConfig, experts: list[ExpertsSpec], model: ModelFacts, holding: Holding, choices: list[Choice]
) -> Offload:
    if asked.parallel.enable_expert_parallel:
        raise ConfigError(
            f"--offload-gb is {asked.model.offload_gb:g}, but --enable-expert-parallel gives every rank experts of its "
            "own; leave one out."
        )
    num_experts = max(each.num_experts for each in experts)
    ranks = asked.parallel.tensor_parallel_size * asked.parallel.pipeline_parallel_size
    each = _expert_bytes(experts, model, holding) // ranks
    fewest = min(num_experts, max(layer.routing.top_k for layer in experts))
    size = asked.model.offload_gb
    slots = max(fewest, num_experts - -(-int(size * GIB) // max(each, 1)))
    if slots >= num_experts:
        raise ConfigError(
            f"--offload-gb is {size:g}, but each token of {model.name} asks for all {num_experts} experts of a layer; "
            "leave it out."
        )
    reason = f"{size:g} GiB asked for, {each / GIB:.3g} GiB for one expert of every layer"
    if slots == fewest:
        reason += f"; a token has {fewest}, so no fewer"
    choices.append(Choice("expert_slots", f"{slots} of {num_experts} experts a layer", reason))
    return Offload(expert_slots=slots, away=(num_experts - slots) * each)


def _left_in_file(
    size: float,
    experts: list[ExpertsSpec],
    model: ModelFacts,
    device: DeviceFacts,
    holding: Holding,
    choices: list[Choice],
) -> Offload:
    if not experts or not holding.cpu_core:
        raise ConfigError(
            f"--offload-gb is {size:g}, but a CPU's weights are in host memory already, and only experts that the "
            "native core computes can stay in their file; leave it out."
        )
    each = _expert_bytes(experts, model, holding)
    most = each * (max(layer.num_experts for layer in experts) - max(layer.routing.top_k for layer in experts))
    away = min(int(size * GIB), most)
    reason = "experts are mapped from a file, and come into memory as they are asked for"
    choices.append(Choice("offload_gb", decimal_size(away), reason))
    return Offload(away=away)


def _expert_bytes(experts: list[ExpertsSpec], model: ModelFacts, holding: Holding) -> int:
    """Of one expert of every layer that has some."""
    return sum(
        holding.matrix_bytes(model, matrix) // layer.num_experts
        for layer in experts
        for matrix in (layer.up, layer.down)
    )
