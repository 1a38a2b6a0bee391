"""From a loop that is ready to one that exchanges KV with other engines."""

import ssl
from collections.abc import Callable
from pathlib import Path

from quire.config.server import KVCarrier
from quire.core.carried_blocks import AddressedBlocks, CarriedBlocks
from quire.core.errors import ConfigError
from quire.engine.kv_exchange import KVExchange
from quire.engine.start import StartedLoop
from quire.kvcache.transfer.fetcher import KVFetcher
from quire.kvcache.transfer.format import kv_format
from quire.kvcache.transfer.nixl_carrier import NixlMemory, open_nixl
from quire.kvcache.transfer.sender import KVSender
from quire.models.loading.fingerprint import fingerprint
from quire.scheduler.scheduler import Scheduler


def start_exchange(
    started: StartedLoop,
    path: Path,
    listen: str,
    secret: bytes,
    wake: Callable[[], None],
    tls: ssl.SSLContext | None = None,
    ca_file: str | None = None,
    carrier: KVCarrier = "sockets",
) -> KVExchange:
    """Send KV from `listen`; `wake` is called where the loop may be waiting for messages and has something to do."""
    resolved = started.resolved
    if not resolved.enable_prefix_caching:
        raise ConfigError("engines exchange KV by the names of the prefix cache, which is off; leave it on.")
    # dtypes and ways of quantizing change what a model computes, though its files are the same
    identity = f"{fingerprint(path)} {resolved.dtype} {resolved.quantization or 'as stored'}"
    if resolved.mmproj is not None:  # it decides what tokens of images leave
        identity = f"{identity} {fingerprint(Path(resolved.mmproj))}"
    if resolved.random_weights:
        identity = f"random weights {resolved.dtype}"
    own = kv_format(identity, started.facts.spec.caches, resolved.kv)
    blocks = started.loop.executor.carried_blocks(own.num_heads)
    if own.block_bytes != blocks.block_bytes:
        raise ConfigError(
            f"blocks of this engine have {blocks.block_bytes} bytes, and {own.block_bytes} were expected."
        )
    scheduler = started.loop.scheduler
    assert isinstance(scheduler, Scheduler), "settings with several attention ranks are refused"
    nixl = _nixl(blocks, listen) if carrier == "nixl" else None
    sender = KVSender(listen, own, blocks, secret, wake, tls, nixl)
    fetcher = KVFetcher(own, blocks, secret, wake, ca_file, nixl)
    exchange = KVExchange(scheduler, sender, fetcher, resolved.preemption_costs)
    started.loop.wait_for_kv(exchange.begin)
    return exchange


def _nixl(blocks: CarriedBlocks, listen: str) -> NixlMemory:
    if not isinstance(blocks, AddressedBlocks):
        raise ConfigError(
            "--kv-carrier is nixl, but the heads of this engine's blocks lie on several ranks, which have no memory in "
            "common to be read; use --kv-carrier sockets, or --tensor-parallel-size 1."
        )
    if listen.startswith("tls:"):
        raise ConfigError(
            "--kv-carrier is nixl, but --listen is a tls:// address, and NIXL does not encrypt what it carries; use "
            "--kv-carrier sockets, or tcp:// in a network of the engines' own."
        )
    return open_nixl(blocks, on_one_host=listen.startswith("unix:"))
