"""From resolved settings to the disk tier of one engine: its folder, its lock, what earlier processes left there."""

import logging
import os
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path

import msgspec

from quire.config.resolved import DiskRoom, Resolved
from quire.core.errors import ConfigError
from quire.core.version import QUIRE_VERSION
from quire.engine.disk_copies import DiskCopies
from quire.engine.prefix_disk import PrefixDisk
from quire.executor.base import Executor
from quire.kvcache.chain import NAME_BYTES
from quire.kvcache.disk import DiskTier
from quire.kvcache.disk_folders import own_folder, remove_unused
from quire.kvcache.manager import KVManager
from quire.kvcache.segments import SUFFIX, VERSION, Segments, slots_in
from quire.kvcache.transfer.format import kv_format
from quire.models.loading.identity import checkpoint_identity
from quire.spec.cache import CacheSpec

_log = logging.getLogger(__name__)


def open_disk(
    path: Path, resolved: Resolved, caches: Sequence[CacheSpec], kv: KVManager, executor: Executor
) -> PrefixDisk | None:
    """None where prefixes stay in memory; `path` has the model's files, and `caches` are those of its whole layers."""
    room = resolved.disk
    if room is None:
        return None
    # a block on disk has the heads of all ranks, and the layers of all stages
    num_heads = 1 if resolved.tensor_parallel_size == 1 else kv_format("", caches, resolved.kv).num_heads
    blocks = partial(executor.carried_blocks, num_heads)
    size = blocks().block_bytes
    identity = kv_identity(path, resolved)
    try:
        root = Path(room.path).expanduser()
        folder, lock = own_folder(root, identity)
        for removed in remove_unused(root, folder, room.num_bytes, SUFFIX):
            _log.info("%s, which no engine uses, is removed: there would be too much below %s", removed, root)
        num_slots = slots_in(room.num_bytes, size)
        segments = Segments(folder, identity, size, num_slots, lock)
        found, unusable, problems = segments.scan()
    except OSError as error:
        raise ConfigError(f"--kv-disk-path {room.path} cannot be used: {error}") from None
    tier = DiskTier(num_slots, resolved.kv.groups, resolved.kv.block_size)
    tier.restore(found, unusable)
    tier.stats.foreign = len(problems)
    if problems:
        _log.warning("%d files below %s are not used, and left as they are: %s", len(problems), folder, problems[0])
    _warn_of_space(room, folder, size * len(found))
    _log.info("%s holds %d of %d KV blocks on disk", folder, len(found), num_slots)
    copies = DiskCopies(segments, blocks)
    return PrefixDisk(kv, tier, copies, size, resolved.preemption_costs.seconds_per_token)


def kv_identity(path: Path, resolved: Resolved) -> bytes:
    """Equal for engines whose blocks of one name hold the same: same model, and stored and computed in the same way."""
    kv = resolved.kv
    groups = [(group.layers, group.window, group.planes) for group in kv.groups]
    weights = "random" if resolved.random_weights else checkpoint_identity(path, resolved.mmproj)
    computed = (resolved.dtype, resolved.quantization, resolved.keep_packed, resolved.cpu_core)
    stored = (kv.dtype, kv.block_size, kv.block_bytes, groups, resolved.stage_ends)
    facts = (VERSION, QUIRE_VERSION, weights, computed, resolved.uses_transformers, stored)
    return blake2b(msgspec.json.encode(facts), digest_size=NAME_BYTES).digest()


def _warn_of_space(room: DiskRoom, folder: Path, there: int) -> None:
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if free + there < room.num_bytes:
        _log.warning(
            "%s has %d MiB free, less than the %d MiB that prefixes may take: when it is full, no more are written",
            *(folder, free >> 20, room.num_bytes >> 20),
        )
