"""Decisions of `resolve` about models that have an encoder before their decoder."""

from quire.config.decide_memory import memory_share
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.memory import state_bytes
from quire.core.errors import ConfigError


def check_encoder(asked: EngineConfig, model: ModelFacts) -> None:
    """Refuse what the two parts of such a model do not go with."""
    if model.spec.encoder is None:
        return
    given = {
        "--tensor-parallel-size": asked.parallel.tensor_parallel_size > 1,
        "--pipeline-parallel-size": asked.parallel.pipeline_parallel_size > 1,
        "--speculative-config": asked.scheduler.speculative_config is not None,
        "--enable-lora": asked.lora.enable_lora,
        "--quantization": asked.model.quantization is not None,
        "--offload-gb": bool(asked.model.offload_gb),
        "--compile": asked.model.compile,
        "--batch-invariant": asked.model.batch_invariant,
    }
    for flag, is_there in given.items():
        if is_there:
            raise ConfigError(
                f"{flag} is for decoders so far, and {model.name} ({model.spec.architecture}) has an encoder and a "
                "decoder; leave it out."
            )


def most_sequences(asked: EngineConfig, model: ModelFacts, device: DeviceFacts, dtype: str) -> int | None:
    """Sequences whose encoded media take a quarter of the memory there is; None: nothing is kept of any."""
    each = state_bytes(model, dtype, 1) if model.spec.encoder is not None else 0
    if not each:
        return None
    return max(1, int(device.memory_bytes * memory_share(asked.cache, device)) // 4 // each - 1)
