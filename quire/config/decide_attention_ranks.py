"""Decisions of `resolve` about ranks that attend each to sequences of their own, while experts are spread over all."""

from quire.config.engine import EngineConfig
from quire.config.resolved import Choice
from quire.core.errors import ConfigError


def check_attention_ranks(asked: EngineConfig) -> None:
    """Refuse what such ranks do not do yet, each by name."""
    parallel = asked.parallel
    if parallel.attention_ranks == 1:
        return
    size, tensor, stages = parallel.attention_ranks, parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    given = f"--data-parallel-size {size} with --enable-expert-parallel"
    if tensor > 1 or stages > 1:
        what = f"--tensor-parallel-size is {tensor}" if tensor > 1 else f"--pipeline-parallel-size is {stages}"
        raise ConfigError(
            f"{given} has every rank attend by itself to sequences of its own, but {what}; leave that out, or give "
            f"--replicas {size} instead of --data-parallel-size for {size} copies that are each spread so."
        )
    obstacles = {
        f"--kv-disk-path is {asked.cache.kv_disk_path}": asked.cache.kv_disk_path is not None,
        "KV is to be exchanged between engines (--kv-transfer, --role, --prefill-engines)": asked.server.exchanges_kv,
    }
    found = next((what for what, is_there in obstacles.items() if is_there), None)
    if found is not None:
        raise ConfigError(
            f"{given} does not go together with this yet: {found}. Leave one out, or use --tensor-parallel-size {size} "
            "with --enable-expert-parallel."
        )


def decide_attention_ranks(asked: EngineConfig, choices: list[Choice]) -> int:
    """Ranks that attend each to sequences of their own."""
    ranks = asked.parallel.attention_ranks
    if ranks > 1:
        reason = "each with rows, tokens of a step and KV of its own; experts are spread over all"
        choices.append(Choice("attention_ranks", f"{ranks}", reason))
    return ranks
