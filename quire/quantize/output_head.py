"""The output head: quantized unless --ignore names it; one tied to the embedding becomes a matrix of its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.core.errors import ConfigError
from quire.models.loading.quantization.modules import targets
from quire.models.registry import describe
from quire.quantize.options import PLAIN, QuantizeOptions
from quire.quantize.source import Source
from quire.spec.model import ModelSpec

_TIED = "tie_word_embeddings"


def written_spec(source: Source, options: QuantizeOptions) -> ModelSpec:
    """Of the folder that is written."""
    spec = source.spec
    if not spec.tied or not quantizes_head(options):
        return spec
    head = describe(untied(source.model.config), str(source.path)).head
    if head is None:
        raise ConfigError(
            f"{spec.architecture} has no output head apart from its embedding; give --ignore lm_head, or leave "
            "--ignore out."
        )
    return replace(spec, tied=False, head=head)


def quantizes_head(options: QuantizeOptions) -> bool:
    """`lm_head` in --ignore means every family's head, however it is called."""
    return options.scheme not in PLAIN and not targets(options.ignore, "--ignore").match("lm_head")


def untied(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config whose head is a matrix of its own."""
    told = {**config, _TIED: False}
    if isinstance(config.get("text_config"), dict):
        told["text_config"] = {**config["text_config"], _TIED: False}
    return told
