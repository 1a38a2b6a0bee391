"""Decisions of `resolve` about prefixes on disk: how much of it, and what it does not go with."""

from quire.config.engine import EngineConfig
from quire.config.resolved import Choice, DiskRoom, KVLayout
from quire.config.sizes import GIB
from quire.config.speculation import Speculation
from quire.core.errors import ConfigError

_USUAL_GIB = 16.0


def decide_disk(
    asked: EngineConfig, layout: KVLayout, speculation: Speculation | None, choices: list[Choice]
) -> DiskRoom | None:
    """The share of one engine."""
    path, size = asked.cache.kv_disk_path, asked.cache.kv_disk_gb
    if path is None:
        return None
    if not asked.cache.enable_prefix_caching:
        raise ConfigError("--kv-disk-path keeps the prefix cache, which is turned off; leave one of them out.")
    if speculation is not None and speculation.keeps_kv:
        raise ConfigError(
            f"--kv-disk-path is set and the method of --speculative-config is {speculation.method}, whose own KV is "
            "not kept on disk; leave --kv-disk-path out, or draft with ngram or suffix."
        )
    room = int((_USUAL_GIB if size is None else size) * GIB) // asked.server.replicas
    block_bytes = layout.block_bytes * asked.parallel.ranks_per_sequence  # all ranks' part of a block lies together
    tokens = room // block_bytes // len(layout.groups) * layout.block_size
    if not tokens:
        raise ConfigError(
            f"--kv-disk-gb {size:g} holds no block of {block_bytes:,} bytes for each of "
            f"{asked.server.replicas} engines; raise it."
        )
    reason = "the usual" if size is None else "asked for"
    if asked.server.replicas > 1:
        reason += f", shared by {asked.server.replicas} engines"
    choices.append(Choice("kv_disk", f"{room / GIB:.4g} GiB (about {tokens:,} tokens) in {path}", reason))
    return DiskRoom(path, room)


def refuse_disk(asked: EngineConfig, model: str) -> None:
    """For a model that keeps no KV."""
    if asked.cache.kv_disk_path is not None:
        raise ConfigError(f"--kv-disk-path is set, but {model} keeps no KV; leave it out.")
