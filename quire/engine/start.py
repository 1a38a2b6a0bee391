"""From what was asked for to a loop that is ready to step, on this machine's device."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quire.config.decide_cpu import slow_for_lack_of
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.remedies import advised
from quire.config.resolve import resolve
from quire.config.resolve_embedding import resolve_embedding
from quire.config.resolved import DraftPlan, Resolved
from quire.core.errors import CheckpointError, ConfigError, DoesNotFit
from quire.engine.assemble import make_engine_scheduler, make_scheduler
from quire.engine.loop import EngineLoop
from quire.engine.open_disk import open_disk
from quire.engine.plugin_clashes import check_clashes
from quire.engine.progress import LoadingBar
from quire.executor.base import Executor
from quire.executor.inline import local_device_facts, start_inline, start_inline_pooling
from quire.executor.start_ranks import start_ranks
from quire.lora.registry import with_targets
from quire.models.loading.drafter import plan_drafter
from quire.models.loading.drafting_method import with_drafting_method
from quire.models.loading.header import read_model_facts
from quire.models.loading.sentence_settings import read_sentence_settings
from quire.observe.choices import choices_text
from quire.observe.start_clock import StartClock
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.vocabulary import GrammarVocabulary
from quire.text.labels import only_pools

_log = logging.getLogger(__name__)
_CLASSIFIER = "ForSequenceClassification"


@dataclass(frozen=True, slots=True)
class StartedLoop:
    """A loop and what it was made from."""

    loop: EngineLoop
    resolved: Resolved
    facts: ModelFacts


def start_loop(
    asked: EngineConfig,
    path: Path,
    *,
    seed: int = 0,
    tenant_weights: Mapping[str, float] | None = None,
    memory_share: float = 1.0,
    clock: StartClock | None = None,
) -> StartedLoop:
    """Load the model whose files are at `path`.

    `memory_share` is what this engine may plan with of its device's memory; `clock` is told what took how long.
    """
    clock = clock or StartClock()
    _refuse_what_is_not_built(asked)
    check_clashes()
    facts = read_model_facts(str(path), impl=asked.model.model_impl, mmproj=asked.model.mmproj)
    _warn_of_transformers(asked, facts)
    if only_pools(facts):
        return _start_reading(asked, path, facts, tenant_weights, clock)
    if not facts.spec.generates:
        raise CheckpointError(
            f"{path} lacks lm_head.weight, its output head: it can embed texts but not generate any; the download "
            "may be incomplete."
        )
    clock.done("reading the model's header")
    asked = with_drafting_method(with_targets(asked, facts.spec))
    device = _device_of_a_rank(asked, memory_share)
    clock.done("finding the device")

    def drafter_of(asked: EngineConfig, device: DeviceFacts) -> DraftPlan | HeadFacts | None:
        return plan_drafter(asked, path, facts, device)

    try:
        drafter = drafter_of(asked, device)
        resolved = resolve(asked, facts, device, drafter)
    except DoesNotFit as error:
        raise advised(error, asked, facts, device, drafter_of) from None
    _warn_of_torch(asked, facts, device)
    _log.info("starting %s\n%s", facts.name, choices_text(resolved.choices))
    grammars = GrammarCache(lambda: _grammar_vocabulary(path, facts))
    executor = _start_executor(
        *(asked, path, facts, resolved, device, drafter), seed=seed, grammars=grammars, clock=clock
    )
    scheduler = make_engine_scheduler(resolved, tenant_weights)
    disk = open_disk(path, resolved, facts.spec.caches, scheduler.kv_of_ranks[0], executor)
    if disk is not None:
        clock.done("prefixes on disk")
    return StartedLoop(EngineLoop(scheduler, executor, grammars, disk), resolved, facts)


def _start_executor(
    asked: EngineConfig,
    path: Path,
    facts: ModelFacts,
    resolved: Resolved,
    device: DeviceFacts,
    drafter: DraftPlan | HeadFacts | None,
    *,
    seed: int,
    grammars: GrammarCache,
    clock: StartClock,
) -> Executor:
    """Load the weights, in this process or over the ranks that share the model."""
    lazy, size = asked.model.lazy_loading, facts.total_weight_bytes
    with LoadingBar(size, enabled=not lazy) as bar:
        if resolved.num_ranks == 1:
            return start_inline(
                path, resolved, seed=seed, in_background=lazy, progress=bar.loaded, grammars=grammars, clock=clock
            )
        return start_ranks(
            *(path, resolved, asked, device),
            file_bytes=size + (0 if drafter is None else drafter.file_bytes),
            seed=seed,
            progress=bar.loaded,
            grammars=grammars,
            clock=clock,
        )


def _warn_of_transformers(asked: EngineConfig, facts: ModelFacts) -> None:
    if not facts.spec.is_described and asked.model.model_impl == "auto":
        _log.warning(
            "quire has no code of its own for %s (%s): it runs through transformers' modules, which is slower; "
            "--model-impl quire refuses such models",
            facts.name,
            facts.spec.architecture,
        )


def _warn_of_torch(asked: EngineConfig, facts: ModelFacts, device: DeviceFacts) -> None:
    lacking = slow_for_lack_of(asked, facts, device)
    if lacking is not None:
        _log.warning(
            "quire's native core for CPUs has no %s, which %s needs: torch computes instead, which is slower; "
            "--cpu-compute exact chooses torch",
            lacking,
            facts.name,
        )


def _device_of_a_rank(asked: EngineConfig, memory_share: float) -> DeviceFacts:
    """What one rank may plan with: all ranks on a CPU share its memory, as engines do."""
    plugin, ranks = asked.model.device_plugin, asked.parallel.num_ranks
    if plugin is not None and ranks > 1:
        raise ConfigError(
            f"--device-plugin is {plugin!r}, and the model is spread over {ranks} ranks, which only quire's own "
            "devices exchange tensors between; leave --tensor-parallel-size and --pipeline-parallel-size out."
        )
    device = local_device_facts(plugin)
    sharers = asked.parallel.num_ranks // asked.parallel.nnodes if device.kind == "cpu" else 1
    return device.shared(memory_share / sharers)


def _grammar_vocabulary(path: Path, facts: ModelFacts) -> GrammarVocabulary:
    """Reads the tokenizer, when the first request wants structured output."""
    from quire.engine.grammar.vocabulary import grammar_vocabulary
    from quire.text.load import load_tokenizer

    return grammar_vocabulary(load_tokenizer(path), facts.spec.vocab_size)


def _start_reading(
    asked: EngineConfig,
    path: Path,
    facts: ModelFacts,
    tenant_weights: Mapping[str, float] | None,
    clock: StartClock,
) -> StartedLoop:
    """A model that reads texts and generates none: no KV, no sampler, and whole prompts in every step."""
    if asked.scheduler.speculative_config is not None:
        raise ConfigError(
            f"--speculative-config is for models that generate, and {facts.name} only reads; leave it out."
        )
    if facts.spec.architecture.endswith(_CLASSIFIER) and not facts.labels:
        raise CheckpointError(
            f"{path} is a classifier ({facts.spec.architecture}) whose head quire does not have; give one of another "
            "family, or an embedding model, which quire also scores texts with."
        )
    resolved = resolve_embedding(
        asked, facts, local_device_facts(asked.model.device_plugin), read_sentence_settings(path).max_length
    )
    _log.info("starting %s\n%s", facts.name, choices_text(resolved.choices))
    with LoadingBar(facts.total_weight_bytes, enabled=True) as bar:
        executor = start_inline_pooling(path, resolved, bar.loaded, clock)
    clock.done("loading the model")
    return StartedLoop(EngineLoop(make_scheduler(resolved, tenant_weights), executor), resolved, facts)


def _refuse_what_is_not_built(asked: EngineConfig) -> None:
    """A setting is honoured or refused, never ignored."""
    if asked.parallel.node_rank:
        raise ConfigError(
            f"--node-rank is {asked.parallel.node_rank}, but the engine runs on host 0 of --nnodes; run `quire serve` "
            "here with these settings, which starts this host's workers."
        )
