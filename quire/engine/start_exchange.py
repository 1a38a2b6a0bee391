"""From a loop that is ready to one that exchanges KV with other engines."""

import ssl
from collections.abc import Callable
from pathlib import Path

from quire.core.errors import ConfigError
from quire.engine.kv_exchange import KVExchange
from quire.engine.start import StartedLoop
from quire.kvcache.transfer.fetcher import KVFetcher
from quire.kvcache.transfer.format import kv_format
from quire.kvcache.transfer.sender import KVSender
from quire.models.loading.fingerprint import fingerprint


def start_exchange(
    started: StartedLoop,
    path: Path,
    listen: str,
    secret: bytes,
    wake: Callable[[], None],
    tls: ssl.SSLContext | None = None,
    ca_file: str | None = None,
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
    sender = KVSender(listen, own, blocks, secret, wake, tls)
    fetcher = KVFetcher(own, blocks, secret, wake, ca_file)
    exchange = KVExchange(started.loop.scheduler, sender, fetcher, resolved.preemption_costs)
    started.loop.wait_for_kv(exchange.begin)
    return exchange
