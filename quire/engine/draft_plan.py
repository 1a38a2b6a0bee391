"""The model or head that drafts for another: found, checked against the large one, and planned."""

from dataclasses import replace
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.model import NO_MMPROJ
from quire.config.resolve import resolve
from quire.config.resolved import DraftPlan
from quire.config.speculation import SETTING, Speculation
from quire.core.errors import ConfigError
from quire.models.loading.described_head import describe_head
from quire.models.loading.header import read_model_facts
from quire.models.loading.locate import locate
from quire.spec.cache import KeyValueCache
from quire.spec.draft_head import has_head, head_kind
from quire.text.load import load_tokenizer

_SPELLINGS = 997
"""Token ids whose spellings are compared, spread over the vocabulary; the text below is compared as well."""
_TEXT = "def café(x):\n\treturn [x ** 2, 'naïve', 1234567, 0.5e-3]  # 漢字 🙂 <|im_end|>\r\n"


def plan_drafter(
    asked: EngineConfig, path: Path, large: ModelFacts, device: DeviceFacts
) -> DraftPlan | HeadFacts | None:
    """Of the large model at `path`; None where neither a model nor a head drafts."""
    speculation = asked.scheduler.speculation()
    if speculation is not None and has_head(speculation.method):
        return plan_head(speculation, path, large, device)
    return plan_draft(asked, path, large, device)


def plan_head(speculation: Speculation, path: Path, large: ModelFacts, device: DeviceFacts) -> HeadFacts:
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
    width = 4 if device.kind == "cpu" else 2
    weights = max(spec.num_parameters * width, sum(found.span.num_bytes for found in matched.found.values()))
    return HeadFacts(str(head_path), weights, spec.caches, spec.hidden_size)


def plan_draft(asked: EngineConfig, path: Path, large: ModelFacts, device: DeviceFacts) -> DraftPlan | None:
    """None where no model drafts. Refuses one that does not speak the tokens of the large one, at `path`."""
    speculation = asked.scheduler.speculation()
    if speculation is None or speculation.method != "draft_model":
        return None
    small_path = locate(speculation.model)
    small = read_model_facts(str(small_path), mmproj=NO_MMPROJ)
    _check(small, small_path, large, path)
    alone = replace(
        asked,
        model=replace(asked.model, model=str(small_path), revision=None, max_model_len=None, offload_gb=0.0),
        scheduler=replace(asked.scheduler, speculative_config=None),
        cache=replace(asked.cache, num_gpu_blocks_override=None),
    )
    return DraftPlan(str(small_path), resolve(alone, small, device))


def _check(small: ModelFacts, small_path: Path, large: ModelFacts, path: Path) -> None:
    told = f"{SETTING} has the model {small_path.name}"
    if not (small.spec.generates and small.spec.is_described):
        raise ConfigError(f"{told}, which is no decoder of quire's own families; give one that is.")
    if not all(isinstance(cache, KeyValueCache) for cache in small.spec.caches):
        raise ConfigError(f"{told}, some layers of which keep no keys and values; give one of attention alone.")
    if small.spec.vocab_size != large.spec.vocab_size:
        raise ConfigError(
            f"{told} with {small.spec.vocab_size:,} tokens, and {large.name} has {large.spec.vocab_size:,}; a model "
            "that drafts must have the same vocabulary: give a smaller one of the same family."
        )
    one, other = load_tokenizer(small_path), load_tokenizer(path)
    size = large.spec.vocab_size
    ids = range(0, size, max(1, size // _SPELLINGS))
    different = next((number for number in ids if one.id_to_token(number) != other.id_to_token(number)), None)
    if different is not None:
        raise ConfigError(
            f"{told}, whose token {different} is {one.id_to_token(different)!r}, and {large.name} has "
            f"{other.id_to_token(different)!r} there; a model that drafts must have the same tokenizer."
        )
    if one.encode(_TEXT) != other.encode(_TEXT):
        raise ConfigError(
            f"{told}, whose tokenizer cuts texts otherwise than that of {large.name}; a model that drafts must have "
            "the same."
        )
