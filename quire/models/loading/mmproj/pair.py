"""Pair: a GGUF language model and its mmproj file as the one model that they were converted from. Torch-free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.config.facts import MediaFacts
from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFHeader
from quire.models.loading.gguf_metadata import GGUFMetadata
from quire.models.loading.match import Found, match
from quire.models.loading.mmproj.names import mmproj_names, whole_spans, with_pieces
from quire.models.loading.mmproj.projectors import find_projector
from quire.models.loading.mmproj.tower import MmprojTower, is_mmproj_header
from quire.models.loading.mmproj.vocabulary import image_tokens
from quire.models.registry import describe
from quire.spec.model import ModelSpec

_AXES = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """What both files say together."""

    tower: MmprojTower
    names: Mapping[str, str]
    """Of the projector's tensors: GGUF's stems by the spec's."""
    unused: str
    """Pattern of tensors that the model does not need."""
    config: dict[str, Any]
    """What the config.json of the whole would say."""
    media: MediaFacts
    spec: ModelSpec

    def match(self) -> dict[str, Found]:
        """Every tensor of the tower with its place in the file, or an error."""
        assert self.spec.vision is not None, "every projector describes a tower"
        names = mmproj_names(self.spec.vision, self.tower, self.names, self.unused)
        found = match(self.spec, whole_spans(self.tower), names, self.tower.source).found
        return {name: with_pieces(each, self.tower) for name, each in found.items()}


def read_pair(headers: Sequence[GGUFHeader], text: Mapping[str, Any], file: Path) -> Pair:
    """The language model of these headers, whose own config is `text`, with the tower in `file`.

    Two files that do not belong together are refused with what tells so.
    """
    tower, language = MmprojTower(file), GGUFMetadata(headers[0])
    projector = find_projector(tower)
    if projector.goes_with and language.architecture not in projector.goes_with:
        raise CheckpointError(
            f"{file} has a projector of type {tower.projector!r}, which goes with language models of "
            f"{' or '.join(projector.goes_with)}, and {language.source} is of {language.architecture!r}; give the "
            "mmproj file of that model, or none."
        )
    tensor, axis = projector.width
    width = tower.width_of(tensor, axis)
    if width != text["hidden_size"]:
        raise CheckpointError(
            f"{file} makes embeddings of {width} numbers, and {language.source} reads {text['hidden_size']}; the two "
            "files are of different models."
        )
    told = projector.told(tower)
    tokens, written = image_tokens(headers[0].path, projector.tokens, projector.stands_in)
    config = {**told.config, **tokens, "text_config": {**text, **_rotary(language, text)}}
    media = MediaFacts(config, told.image, told.video, str(file), written)
    names = {**projector.names, **told.names}
    return Pair(tower, names, projector.unused, config, media, describe(config, str(file)))


def refuse_mmproj_as_model(header: GGUFHeader) -> None:
    """An mmproj file was given where a model is expected."""
    if is_mmproj_header(header):
        raise CheckpointError(
            f"{header.path} is an mmproj file, which holds a model's vision encoder alone; give the .gguf file of its "
            "language model, and this one as --mmproj."
        )


def _rotary(language: GGUFMetadata, text: Mapping[str, Any]) -> dict[str, Any]:
    """Positions on several axes, which only images make differ: which pairs of a head turn by which."""
    sections = language.sizes_or_none("rope.dimension_sections")
    if sections is None:
        return {}
    scaling = text.get("rope_scaling") or {"rope_type": "default"}
    return {"rope_scaling": {**scaling, "mrope_section": sections[:_AXES]}}
