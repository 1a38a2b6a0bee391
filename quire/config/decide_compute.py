"""Decisions of `resolve` about computing: dtypes, how many tokens and sequences a step holds, how a model is cut."""

from quire.config.decide_attention_ranks import check_attention_ranks
from quire.config.decide_experts import check_experts
from quire.config.dtypes import COMPUTE_DTYPES
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.memory import stages_of
from quire.config.resolved import Choice, StepLimits
from quire.config.scheduler import SchedulerConfig
from quire.config.speculation import METHODS
from quire.core.errors import ConfigError

_SHORTEST_COMPILED = 16
_DEFAULT_SEQS = {"cuda": 256, "cpu": 64}
_DEFAULT_TOKENS = {"cuda": 8192, "cpu": 512}
_SMALL_MODEL, _SMALL_MODELS_TOKENS = 2_000_000_000, 16_384
"""Parameters below which a GPU computes a step of the usual size in little more than the host takes to launch it: 8,192
tokens of 0.6 billion take an H200 22 ms. Steps twice as long are still short for streams that run beside them."""


def check_parallel(asked: EngineConfig, model: ModelFacts) -> None:
    """Raise a ConfigError unless the model can be cut this way."""
    parallel = asked.parallel
    size = parallel.tensor_parallel_size
    heads = model.spec.num_heads
    if heads % size:
        allowed = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise ConfigError(
            f"--tensor-parallel-size is {size}, but the model has {heads} attention heads, which {size} does "
            f"not divide; use one of {allowed}."
        )
    for cache in dict.fromkeys(model.spec.caches):
        cache.of_rank(size)
    if parallel.distributed_executor_backend != "auto" and parallel.num_ranks == 1:
        raise ConfigError(
            f"--distributed-executor-backend is {parallel.distributed_executor_backend}, but the model runs on one "
            "device; leave it out, or give a --tensor-parallel-size or --pipeline-parallel-size."
        )
    _check_hosts(asked)
    check_experts(asked, model)
    check_attention_ranks(asked)
    stages_of(model, parallel)
    _check_ranks(asked)


def spread_by(asked: EngineConfig) -> str | None:
    """The option, with its value, that spreads the model over several ranks; None: it runs on one device."""
    parallel = asked.parallel
    if parallel.tensor_parallel_size > 1:
        return f"--tensor-parallel-size is {parallel.tensor_parallel_size}"
    if parallel.pipeline_parallel_size > 1:
        return f"--pipeline-parallel-size is {parallel.pipeline_parallel_size}"
    if parallel.attention_ranks > 1:
        return f"--data-parallel-size is {parallel.attention_ranks} with --enable-expert-parallel"
    return None


def _check_ranks(asked: EngineConfig) -> None:
    """Refuse what several ranks do not do yet."""
    _check_speculation(asked)
    stages = asked.parallel.pipeline_parallel_size
    if stages == 1:
        return
    exchange = "KV that engines exchange (--kv-transfer, --role, --prefill-engines) is of"
    for what, is_there in (
        (f"--offload-gb, which is {asked.model.offload_gb:g}, is for", bool(asked.model.offload_gb)),
        (exchange, asked.server.exchanges_kv),
    ):
        if is_there:
            raise ConfigError(
                f"--pipeline-parallel-size is {stages}, but {what} models in one piece so far; use "
                "--tensor-parallel-size, or leave it out."
            )


def _check_speculation(asked: EngineConfig) -> None:
    """Ranks that share layers take the first one's drafts, or come to the same by themselves where these follow from
    tokens alone. Ranks that share experts alone draft each for their own sequences."""
    speculation, parallel = asked.scheduler.speculation(), asked.parallel
    if speculation is None:
        return
    ranks, size = speculation.draft_tensor_parallel_size, parallel.tensor_parallel_size
    if ranks not in (None, 1, size):
        raise ConfigError(
            f"--speculative-config has draft_tensor_parallel_size {ranks}, but --tensor-parallel-size is {size}, and "
            f"what drafts is cut as the model is or whole on every rank; give {'1' if size == 1 else f'1 or {size}'}."
        )
    if parallel.num_ranks == 1:
        return
    if speculation.method not in METHODS:
        raise ConfigError(
            f"--speculative-config has the method {speculation.method} of a plugin, which drafts on one device so far, "
            f"but {spread_by(asked)}; use one of {', '.join(METHODS)}, or leave one out."
        )


def _check_hosts(asked: EngineConfig) -> None:
    parallel = asked.parallel
    if parallel.ray_address is not None and parallel.distributed_executor_backend != "ray":
        raise ConfigError("--ray-address is set without --distributed-executor-backend ray; give both or neither.")
    if parallel.nnodes == 1:
        return
    if parallel.distributed_executor_backend == "ray":
        raise ConfigError(
            f"--nnodes is {parallel.nnodes}, but with --distributed-executor-backend ray the cluster says which hosts "
            "there are; leave one of them out."
        )
    if parallel.num_ranks % parallel.nnodes:
        raise ConfigError(
            f"--nnodes is {parallel.nnodes}, which does not divide the {parallel.num_ranks} ranks of the model; every "
            "host runs equally many."
        )
    if asked.server.num_local_engines > 1:
        raise ConfigError(
            f"--nnodes is {parallel.nnodes} and there are {asked.server.num_local_engines} engines; a server over "
            "several hosts has one. Run a server for each copy, and `quire route` before them."
        )


def decide_stages(asked: EngineConfig, model: ModelFacts, choices: list[Choice]) -> tuple[int, ...]:
    """Where the stages of a pipeline end; nothing where there is no pipeline."""
    if asked.parallel.pipeline_parallel_size == 1:
        return ()
    stages = stages_of(model, asked.parallel)
    layers = " + ".join(str(len(stage)) for stage in stages)
    choices.append(Choice("stages", f"{layers} layers", "about equally many bytes of weights in each"))
    return tuple(stage.stop for stage in stages)


def decide_dtype(
    asked: str, model: ModelFacts, device: DeviceFacts, choices: list[Choice], *, cpu_core: bool = False
) -> str:
    """What activations are computed in; the native core of a CPU leaves weights as they are stored."""
    if cpu_core:
        if asked != "auto":
            check_device_dtype("--dtype", asked, asked, device)
        dtype, reason = "float32", "sums of the native core; weights stay as they are stored"
    elif asked != "auto":
        check_device_dtype("--dtype", asked, asked, device)
        dtype, reason = asked, "asked for"
    else:
        dtype, reason = _own_dtype(model, device)
    choices.append(Choice("dtype", dtype, reason))
    return dtype


def _own_dtype(model: ModelFacts, device: DeviceFacts) -> tuple[str, str]:
    own = model.dtype
    if own == "float32" and device.kind == "cuda" and "bfloat16" in device.dtypes:
        return "bfloat16", "the checkpoint is float32; 16 bits take half the memory and have the same range"
    if own in COMPUTE_DTYPES and own in device.dtypes:
        return own, "the checkpoint's own"
    if own not in COMPUTE_DTYPES:
        dtype = "bfloat16" if device.kind == "cuda" and "bfloat16" in device.dtypes else "float32"
        return dtype, f"the checkpoint is stored as {own}, which is unpacked to compute"
    return "float32", f"the checkpoint is {own}, which {device.name} is not fast at; float32 holds it exactly"


def check_device_dtype(flag: str, asked: str, dtype: str, device: DeviceFacts) -> None:
    """Raise a ConfigError unless the device computes in `dtype`."""
    if dtype not in device.dtypes:
        known = ", ".join("fp8" if name == "float8_e4m3fn" else name for name in device.dtypes)
        raise ConfigError(f"{flag} is {asked}, but {device.name} computes in {known}; use one of those or auto.")


def decide_compile(
    asked: EngineConfig,
    model: ModelFacts,
    limits: StepLimits,
    choices: list[Choice],
    *,
    cpu_core: bool,
    quantized: bool,
) -> bool:
    """Whether layers go through torch.compile; `quantized` is whether their weights are held in 8 or 4 bits."""
    if not asked.model.compile:
        return False
    if cpu_core:
        raise ConfigError(
            "--compile is for models that torch computes, but on this CPU quire's native core does, which is faster; "
            "leave --compile out, or have torch compute with --cpu-compute exact."
        )
    if quantized:
        raise ConfigError(
            "--compile is for weights of 16 or 32 bits, but these are quantized and have kernels of their own; leave "
            "--compile out, or expand them with --packed-weights expand."
        )
    if model.spec.has_experts:
        raise ConfigError(
            f"--compile is for layers without experts, but {model.name} has some, and quire has kernels for them; "
            "leave --compile out."
        )
    spread = spread_by(asked)
    if spread is not None:
        raise ConfigError(f"--compile is for models on one device, but {spread}; leave one of them out.")
    if asked.model.offload_gb:
        raise ConfigError(
            f"--compile needs all weights on the device, but --offload-gb is {asked.model.offload_gb:g}; leave one out."
        )
    if limits.max_model_len < _SHORTEST_COMPILED:
        raise ConfigError(
            f"--compile tries out a sequence of {_SHORTEST_COMPILED} tokens, but sequences have at most "
            f"{limits.max_model_len}; raise --max-model-len or leave --compile out."
        )
    choices.append(Choice("compile", "on", "asked for; this start takes seconds to minutes longer"))
    return True


def decide_step_size(
    asked: SchedulerConfig, model: ModelFacts, device: DeviceFacts, choices: list[Choice], most: int | None = None
) -> tuple[int, int]:
    """Sequences and tokens of one step; of the two, one that was not asked for gives way to one that was.

    Unless asked for, there are no more than `most` sequences, where what is kept of each is large.
    """
    default_seqs, default_tokens = _DEFAULT_SEQS[device.kind], _DEFAULT_TOKENS[device.kind]
    usual = usual_tokens = f"the usual for a {'GPU' if device.kind == 'cuda' else 'CPU'}"
    if device.kind == "cuda" and model.num_parameters < _SMALL_MODEL:
        default_tokens = _SMALL_MODELS_TOKENS
        usual_tokens = f"the usual for fewer than {_SMALL_MODEL // 10**9} billion parameters on a GPU"
    if asked.max_num_seqs is not None:
        seqs, why_seqs = asked.max_num_seqs, "asked for"
    elif asked.max_num_batched_tokens is not None and asked.max_num_batched_tokens < default_seqs:
        seqs, why_seqs = asked.max_num_batched_tokens, "every sequence needs one of the tokens of a step"
    elif most is not None and most < default_seqs:
        seqs, why_seqs = most, "what the encoder makes of each is to take a quarter of memory at most"
    else:
        seqs, why_seqs = default_seqs, usual
    if asked.max_num_batched_tokens is not None:
        tokens, why_tokens = asked.max_num_batched_tokens, "asked for"
    elif seqs > default_tokens:
        tokens, why_tokens = seqs, "every sequence needs one of the tokens of a step"
    else:
        tokens, why_tokens = default_tokens, usual_tokens
    choices.append(Choice("max_num_seqs", f"{seqs:,}", why_seqs))
    choices.append(Choice("max_num_batched_tokens", f"{tokens:,}", why_tokens))
    if asked.long_prefill_token_threshold > tokens:
        raise ConfigError(
            f"--long-prefill-token-threshold is {asked.long_prefill_token_threshold}, which has no effect in steps of "
            f"{tokens} tokens; lower it or raise --max-num-batched-tokens."
        )
    return seqs, tokens
