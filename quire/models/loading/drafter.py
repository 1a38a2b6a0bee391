"""What drafts for a model, a smaller one or a head, as its files tell it, planned for the ranks of the large one.

Every rank comes to the same plan by itself. Which tokens a smaller model shares with the large one is found when it is
loaded.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from quire.config.cutting import column_grain
from quire.config.decide_speculation import draft_ranks
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.model import NO_MMPROJ
from quire.config.parallel import ParallelConfig
from quire.config.resolve import resolve
from quire.config.resolved import DraftPlan
from quire.config.speculation import SETTING, Speculation
from quire.core.errors import ConfigError
from quire.models.loading.described_head import describe_head
from quire.models.loading.header import read_model_facts
from quire.models.loading.locate import locate
from quire.spec.cache import KeyValueCache
from quire.spec.draft_head import has_head, head_kind
from quire.spec.model import ModelSpec
from quire.spec.rank import Place, rank_spec

Small = tuple[Path, ModelFacts]
"""A smaller model: its files, and what they tell."""


def plan_drafter(
    asked: EngineConfig,
    path: Path,
    large: ModelFacts,
    device: DeviceFacts,
    find: Callable[[Speculation], Small] | None = None,
) -> DraftPlan | HeadFacts | None:
    """Of the large model at `path`; None where neither a model nor a head drafts. `find` is how a smaller model is
    looked for; None: on this machine, or brought to it."""
    speculation = asked.scheduler.speculation()
    if speculation is None or not speculation.keeps_kv:
        return None
    if has_head(speculation.method):
        return _plan_head(asked, speculation, path, large, device)
    small_path, small = (find or _find_small)(speculation)
    _check_small(small, small_path)
    return _plan_small(asked, small_path, small, device)


def _find_small(speculation: Speculation) -> Small:
    path = locate(speculation.model)
    return path, read_model_facts(str(path), mmproj=NO_MMPROJ)


def _check_small(small: ModelFacts, path: Path) -> None:
    """Refuse a model that cannot draft for another."""
    told = f"{SETTING} has the model {path.name}"
    if not (small.spec.generates and small.spec.is_described):
        raise ConfigError(f"{told}, which is no decoder of quire's own families; give one that is.")
    if not all(isinstance(cache, KeyValueCache) for cache in small.spec.caches):
        raise ConfigError(f"{told}, some layers of which keep no keys and values; give one of attention alone.")


def _plan_small(asked: EngineConfig, path: Path, small: ModelFacts, device: DeviceFacts) -> DraftPlan:
    """A smaller model; `asked` is for the large one."""
    model = replace(asked.model, model=str(path), revision=None, max_model_len=None, offload_gb=0.0)
    if asked.parallel.num_ranks > 1 and device.kind == "cpu":
        model = replace(model, cpu_compute="exact")  # torch computes the large one too
    alone = replace(
        asked,
        model=model,
        scheduler=replace(asked.scheduler, speculative_config=None),
        cache=replace(asked.cache, num_gpu_blocks_override=None),
        parallel=ParallelConfig(tensor_parallel_size=draft_ranks(asked, small.spec, small.name)),
    )
    return DraftPlan(str(path), resolve(alone, small, device), small.total_weight_bytes)


def _plan_head(
    asked: EngineConfig, speculation: Speculation, path: Path, large: ModelFacts, device: DeviceFacts
) -> HeadFacts:
    """Refuses a head that was made for another model."""
    method = speculation.method
    if not large.spec.is_described:
        raise ConfigError(
            f"{SETTING} has the method {method}, and {large.name} runs through transformers' modules, which do not "
            "tell what a head drafts by; use the method ngram, suffix or draft_model."
        )
    head_path = path if method == "mtp" else locate(speculation.model)
    matched = describe_head(head_path, head_kind(method), large.spec).matched
    spec, most = matched.spec, speculation.num_speculative_tokens
    if spec.draft_head is not None and spec.draft_head.chains and most > len(spec.draft_head.chains):
        raise ConfigError(
            f"{SETTING} has num_speculative_tokens {most}, and {head_path.name} has {len(spec.draft_head.chains)} "
            f"heads, one for each token; give at most {len(spec.draft_head.chains)}."
        )
    if not matched.found:
        raise ConfigError(f"{SETTING} has the model {head_path.name}, which holds no weights.")
    kinds = {name: found.span.dtype for name, found in matched.found.items()}
    facts = ModelFacts(head_path.name, spec, large.dtype, kinds, schemes=matched.schemes)
    ranks, grain = draft_ranks(asked, spec, head_path.name), column_grain(facts)
    # the first rank holds most: what is left over, and biases of sums
    cut = rank_spec(spec, Place(0, ranks, grain, asked.parallel.enable_expert_parallel))
    stored = sum(found.span.num_bytes for found in matched.found.values())
    width = 4 if device.kind == "cpu" else 2
    own = max(cut.num_parameters * width, stored * cut.num_parameters // spec.num_parameters)
    borrows_words = spec.draft_head is not None and spec.draft_head.borrows_words
    return HeadFacts(
        str(head_path),
        weight_bytes=own + (_more_words(asked.parallel, large.spec) * width if borrows_words else 0),
        caches=cut.caches,
        feature_size=spec.hidden_size,
        tensor_parallel_size=ranks,
        column_grain=grain,
        file_bytes=0 if method == "mtp" else stored,
        taps=() if spec.draft_head is None else spec.draft_head.taps,
        borrows_words=borrows_words,
    )


def _more_words(parallel: ParallelConfig, large: ModelSpec) -> int:
    """Parameters of the large model's words that a rank of the last stage has for a head alone."""
    if parallel.pipeline_parallel_size == 1 or large.tied:
        return 0
    words = large.embedding.words
    return -(-words.rows // parallel.tensor_parallel_size) * words.columns
