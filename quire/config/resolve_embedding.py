"""What reading texts takes: `resolve` for a model that has neither KV nor a sampler."""

from quire.config.decide_compute import decide_dtype, decide_step_size
from quire.config.decide_cpu import check_cpu_settings
from quire.config.decide_disk import refuse_disk
from quire.config.decide_invariance import refuse_batch_invariance
from quire.config.decide_lora import refuse_lora
from quire.config.decide_policy import decide_policy, decide_queue_timeout, policy_settings
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Choice, KVGroup, KVLayout, PreemptionCosts, Resolved, StepLimits
from quire.core.errors import ConfigError

_NO_PREEMPTION = PreemptionCosts(seconds_per_token=1.0, seconds_per_block=1.0)
"""Nothing is ever preempted: a text that has a row is done with the step."""


def resolve_embedding(
    asked: EngineConfig, model: ModelFacts, device: DeviceFacts, trained_length: int | None = None
) -> Resolved:
    """`trained_length` is what the checkpoint was trained to embed, where that is less than its positions."""
    choices: list[Choice] = []
    check_cpu_settings(asked, device)
    _refuse_measuring(asked)
    refuse_batch_invariance(asked, model.name)
    refuse_lora(asked, model.name)
    refuse_disk(asked, model.name)
    ranks = asked.parallel.num_ranks
    if ranks > 1:
        raise ConfigError(
            f"{model.name} is opened for embeddings, which run on one device, and {ranks} were asked for; leave "
            "--tensor-parallel-size, --pipeline-parallel-size and --enable-expert-parallel out."
        )
    dtype = decide_dtype(asked.model.dtype, model, device, choices)
    seqs, tokens = decide_step_size(asked.scheduler, model, device, choices)
    longest = _longest(asked.model.max_model_len, model, trained_length, choices)
    return Resolved(
        dtype=dtype,
        kv=_places(seqs, longest, dtype),
        limits=StepLimits(seqs, tokens, longest, whole_prompts=True),
        preemption="recompute",
        preemption_costs=_NO_PREEMPTION,
        policy=decide_policy(asked.scheduler, choices),
        policy_settings=policy_settings(asked.scheduler),
        enable_prefix_caching=False,
        target_itl_ms=None,
        queue_timeout=decide_queue_timeout(asked.scheduler, choices),
        weight_bytes=model.total_weight_bytes,
        choices=tuple(choices),
        cpu_threads=asked.model.cpu_threads,
        device_plugin=asked.model.device_plugin,
    )


def _places(seqs: int, longest: int, dtype: str) -> KVLayout:
    """No KV is kept, so a text is one block without bytes, and there are more of them than rows."""
    group = KVGroup(layers=())
    return KVLayout(longest, 2 * seqs, 0, (group,), block_bytes=0, bytes_per_token=0, dtype=dtype)


def _refuse_measuring(asked: EngineConfig) -> None:
    """A setting is honoured or refused, never ignored."""
    if asked.model.quantization is not None:
        raise ConfigError(
            f"--quantization is {asked.model.quantization}, which is for models that generate; leave it out to embed."
        )
    if asked.model.load_format == "dummy":
        raise ConfigError("--load-format is dummy, which is for models that generate; leave it out to embed.")
    if asked.model.model_impl == "transformers":
        raise ConfigError("--model-impl is transformers, which is for models that generate; leave it out to embed.")
    if asked.model.logits_processors:
        raise ConfigError("--logits-processors is given, which is for models that generate; leave it out to embed.")
    if asked.model.skip_tokenizer:
        raise ConfigError("--skip-tokenizer is given, but texts are embedded by their tokens; leave it out.")


def _longest(asked: int | None, model: ModelFacts, trained: int | None, choices: list[Choice]) -> int:
    longest = model.spec.max_position
    if asked is not None and asked > longest:
        raise ConfigError(
            f"--max-model-len is {asked}, but {model.spec.max_position_source} gives {model.name} {longest} tokens; "
            f"use at most {longest}."
        )
    if asked is not None:
        value, reason = asked, "asked for"
    elif trained is not None and trained < longest:
        value, reason = trained, f"what the checkpoint was trained to embed; it has positions for {longest:,}"
    else:
        value, reason = longest, f"from {model.spec.max_position_source}"
    choices.append(Choice("max_model_len", f"{value:,}", reason))
    return value
