"""What sentence-transformers' files beside a checkpoint say of how it embeds and scores: modules.json,
1_Pooling/config.json, sentence_bert_config.json, config_sentence_transformers.json and its part of config.json. A
checkpoint without them leaves everything open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError, InvalidRequest
from quire.core.pooling import POOLINGS, Pooling
from quire.models.loading.folder import CONFIG
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.json_object import parse_json_object, read_json_object
from quire.spec.model import ModelSpec

_MODULES = "modules.json"
_POOLING = "Pooling"
_KNOWN = ("Transformer", _POOLING, "Normalize")
_LIMITS = "sentence_bert_config.json"
_PROMPTS = "config_sentence_transformers.json"
_MOST_PROMPTS = 1000
_SHOW_PROMPTS = 20
_ACTIVATIONS = {"Sigmoid": False, "Identity": True}
"""What may be made of a cross-encoder's number, and whether it is then as it was."""
_MODES: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_cls_token": "cls",
}
_NAMES: dict[object, Pooling] = {"lasttoken": "last", **{pooling: pooling for pooling in POOLINGS}}


@dataclass(frozen=True, slots=True)
class SentenceSettings:
    """None where the files do not say."""

    pooling: Pooling | None = None
    max_length: int | None = None
    """Tokens it was trained to embed, which may be fewer than it has positions for."""
    lower_case: bool = False
    """Whether texts are put in lower case before they are tokenized."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """What is put before texts for one purpose or another, by its name."""
    default_prompt: str | None = None
    """The name of the one that is used where nobody names any."""
    pools_prompts: bool = True
    """Whether the tokens of a prompt are part of what is pooled."""
    plain_scores: bool = False
    """Whether a cross-encoder's number is the score, as it is."""
    has_reranker_prompt: bool = False
    """Whether it is Qwen3-Reranker as published, which reads pairs within a prompt of its own."""

    def pooling_of(self, spec: ModelSpec) -> Pooling:
        """How the model's texts are pooled: as its files say, else encoders by mean, and decoders the last token."""
        return self.pooling or ("mean" if spec.is_encoder and spec.joint is None else "last")

    def prompt(self, name: str | None = None) -> str:
        """What to put before a text; None is the default. Raises an InvalidRequest for a name that is not there."""
        chosen = self.default_prompt if name is None else name
        if chosen is None:
            return ""
        if chosen not in self.prompts:
            known = ", ".join(list(self.prompts)[:_SHOW_PROMPTS])
            raise InvalidRequest(
                f"prompt_name is {chosen!r}; it must be "
                + (f"one of {known}" if known else "left out, for the model has no prompts"),
                field="prompt_name",
            )
        if self.prompts[chosen] and not self.pools_prompts:
            raise InvalidRequest(
                f"the prompt {chosen!r} is left out of what the model pools (include_prompt is false), which quire "
                "does not have; embed texts without it",
                field="prompt_name",
            )
        return self.prompts[chosen]

    def has_prompt(self, *names: str) -> bool:
        """Whether the model has one of these."""
        return any(name in self.prompts for name in names)

    def prompt_for(self, *names: str) -> str:
        """The first of these prompts that the model has; else the default."""
        return self.prompt(next((name for name in names if name in self.prompts), None))


def read_sentence_settings(path: Path) -> SentenceSettings:
    """The settings beside the model at `path`."""
    folder = path if path.is_dir() else path.parent
    limits, config = _optional(folder / _LIMITS), _optional(folder / CONFIG)
    prompts, default_prompt = _prompts(folder / _PROMPTS)
    pooling, pools_prompts = _pooling(folder)
    return SentenceSettings(
        pooling=pooling,
        max_length=limits.size_or_none("max_seq_length"),
        lower_case=limits.flag("do_lower_case", False),
        prompts=prompts,
        default_prompt=default_prompt,
        pools_prompts=pools_prompts,
        plain_scores=_plain_scores(config),
        has_reranker_prompt=config.flag("is_original_qwen3_reranker", False),
    )


def _prompts(path: Path) -> tuple[dict[str, str], str | None]:
    """Prompts by name, and the name of the default."""
    config = read_json_object(path) if path.is_file() else {}
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    are_texts = isinstance(prompts, dict) and all(isinstance(prompt, str) for prompt in prompts.values())
    if not are_texts or len(prompts) > _MOST_PROMPTS:
        raise CheckpointError(
            f"{path} must give prompts as texts by their names, at most {_MOST_PROMPTS}; download it again."
        )
    if default is not None and default not in prompts:
        raise CheckpointError(f"{path} has the default prompt {default!r}, which is not among its prompts.")
    return prompts, default


def _optional(path: Path) -> HFFields:
    return HFFields(read_json_object(path) if path.is_file() else {}, str(path))


def _plain_scores(config: HFFields) -> bool:
    """Whether a cross-encoder's config.json says that nothing is to be made of its number."""
    inner = config.values.get("sentence_transformers")
    named = inner.get("activation_fn") if isinstance(inner, dict) else None
    named = named or config.values.get("sbert_ce_default_activation_function")
    if named is None:
        return False
    kind = str(named).rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        raise CheckpointError(
            f"{config.source} makes scores by {kind!r}, without which they would be others; quire has "
            f"{', '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[kind]


def _pooling(folder: Path) -> tuple[Pooling | None, bool]:
    """What is pooled, and whether prompts are part of it."""
    chosen: Pooling | None = None
    with_prompts = True
    for module in _modules(folder / _MODULES):
        kind = str(module.get("type")).rpartition(".")[2]
        if kind not in _KNOWN:
            raise CheckpointError(
                f"{folder / _MODULES} has a module of type {kind!r}, without which its embeddings would be others; "
                f"quire has {', '.join(_KNOWN)}."
            )
        if kind == _POOLING:
            path = folder / _inside(folder, str(module.get("path"))) / "config.json"
            chosen, with_prompts = _chosen(path), read_json_object(path).get("include_prompt") is not False
    return chosen, with_prompts


def _modules(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        return []
    # the one file that holds a list; as the value of an object it is read with the checks of all others
    modules = parse_json_object(b'{"modules":' + path.read_bytes() + b"}", str(path))["modules"]
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise CheckpointError(f"{path} must hold a list of modules; download it again.")
    return modules


def _inside(folder: Path, name: str) -> str:
    if Path(name).name != name:
        raise CheckpointError(f"{folder / _MODULES} points to {name!r}, but its modules must lie in the same folder.")
    return name


def _chosen(path: Path) -> Pooling:
    config = read_json_object(path)
    named = config.get("pooling_mode")
    if named in _NAMES:
        return _NAMES[named]
    modes = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) == 1 and modes[0] in _MODES:
        return _MODES[modes[0]]
    raise CheckpointError(
        f"{path} asks for {named or ' and '.join(modes) or 'no pooling'}; quire has {', '.join(_MODES)}, one at a time."
    )
