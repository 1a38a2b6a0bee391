"""`quire engine`: an engine for servers on other hosts."""

from typing import Annotated

from cyclopts import Parameter

from quire.cli.options import (
    CACHE,
    LORA,
    MODEL,
    MULTIMODAL,
    OBSERVE,
    PARALLEL,
    SCHEDULER,
    SERVER,
    CacheOptions,
    ConfigFile,
    LoraOptions,
    ModelOptions,
    ObserveOptions,
    ParallelOptions,
    SchedulerOptions,
)
from quire.config.engine import EngineConfig
from quire.config.multimodal import MultimodalConfig
from quire.config.server import EngineRole, KVCarrier, ServerConfig


def engine(
    model: ModelOptions = MODEL,
    *,
    listen: Annotated[str, Parameter(help="Where to listen: tcp://host:port, tls://host:port or unix:///path.")],
    engine_secret_file: Annotated[str | None, Parameter(help="File with the secret that it shares with servers.")] = (
        SERVER.engine_secret_file
    ),
    ssl_certfile: Annotated[str | None, Parameter(help="PEM file of the certificate of a tls:// address.")] = None,
    ssl_keyfile: Annotated[str | None, Parameter(help="PEM file of its private key. Unset: in the same file.")] = None,
    engine_ca_file: Annotated[
        str | None, Parameter(help="Certificates that other engines at tls:// addresses must be signed by.")
    ] = SERVER.engine_ca_file,
    role: Annotated[EngineRole, Parameter(help="What it is for: prompts, answers, or both.")] = SERVER.role,
    kv_transfer: Annotated[
        bool, Parameter(help="Exchange KV of prefixes with other engines; on where it has a role.")
    ] = SERVER.kv_transfer,
    kv_carrier: Annotated[
        KVCarrier, Parameter(help="How KV goes between engines: through sockets, or read from memory with NIXL.")
    ] = SERVER.kv_carrier,
    step_timeout: Annotated[
        float, Parameter(help="Seconds a step may take before the engine counts as stuck and is replaced.")
    ] = SERVER.step_timeout,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    parallel: ParallelOptions = PARALLEL,
    observe: ObserveOptions = OBSERVE,
    lora: LoraOptions = LORA,
    encoder_cache_tokens: Annotated[
        int, Parameter(help="Embeddings of images that are kept on the device, by content.")
    ] = MULTIMODAL.encoder_cache_tokens,
    config: ConfigFile = None,
) -> int:
    """Run an engine that servers on other hosts use: `quire serve --engines tcp://this-host:port`.

    Both sides give the same --engine-secret-file. A tls:// address uses --ssl-certfile and --ssl-keyfile.
    """
    from quire.serving.run_engine import run_engine

    server = ServerConfig(
        engine_secret_file=engine_secret_file,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        step_timeout=step_timeout,
        engine_ca_file=engine_ca_file,
        role=role,
        kv_transfer=kv_transfer,
        kv_carrier=kv_carrier,
    )
    images = MultimodalConfig(encoder_cache_tokens=encoder_cache_tokens)
    return run_engine(
        EngineConfig(model, cache, scheduler, parallel, server, observe, lora=lora, multimodal=images), listen
    )
