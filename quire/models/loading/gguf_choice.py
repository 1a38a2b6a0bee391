"""Which of a repository's GGUF files is meant: files in parts as one model, told apart by name or by quantization."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from quire.core.errors import CheckpointError

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf", re.IGNORECASE)
_TAG = re.compile(r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|FP?16|FP?32))$", re.IGNORECASE)
_MMPROJ, _IMATRIX = "mmproj", "imatrix"
"""Files that go with a model and are none: what reads images, and what a quantization was weighed by."""
_SHOW = 8


@dataclass(frozen=True, slots=True)
class GGUFModel:
    """A model as a repository has it: one file, or the first of several parts and the others."""

    stem: str
    """Its path without the number of a part and without .gguf."""
    files: tuple[str, ...]
    size: int
    """Bytes of all of them."""
    num_parts: int = 1

    @property
    def tag(self) -> str | None:
        """The quantization that its name ends in, such as Q4_K_M."""
        found = _TAG.search(self.stem)
        return None if found is None else found[1]

    @property
    def is_complete(self) -> bool:
        return len(self.files) == self.num_parts

    def is_called(self, tag: str) -> bool:
        """Whether its name ends in a quantization, however it is spelled."""
        return re.search(rf"(?:^|[-._/]){re.escape(tag)}$", self.stem, re.IGNORECASE) is not None


class SeveralModels(CheckpointError):
    """A repository has several GGUF models, and one must be named."""

    def __init__(self, message: str, models: Sequence[GGUFModel]) -> None:
        super().__init__(message)
        self.models = tuple(models)


def is_beside(name: str) -> bool:
    """Whether a GGUF file goes with a model and is none."""
    return is_mmproj(name) or name.lower().startswith(_IMATRIX)


def is_mmproj(name: str) -> bool:
    """Whether a GGUF file holds a vision encoder, by its name: mmproj-F16.gguf, llava-mmproj-model-f16.gguf."""
    return _MMPROJ in name.lower()


def mmproj_beside(model: str, files: Iterable[str]) -> str | None:
    """Of a repository's files the vision encoder in the folder of a model, if there is one: in 16 bits rather than in
    others, which is what encoders are trained in.
    """
    folder = PurePosixPath(model).parent
    found = [PurePosixPath(file) for file in sorted(files) if file.lower().endswith(".gguf")]
    beside = [file for file in found if file.parent == folder and is_mmproj(file.name)]
    tags = {str(file): _TAG.search(file.stem) for file in beside}
    wanted = {tag: place for place, tag in enumerate(("F16", "FP16", "BF16", "Q8_0"))}
    best = {file: len(wanted) if tag is None else wanted.get(tag[1].upper(), len(wanted)) for file, tag in tags.items()}
    return min(best, key=lambda file: best[file], default=None)


def gguf_models(sizes: Mapping[str, int]) -> list[GGUFModel]:
    """The models among files of these sizes, by their paths in the repository; the smallest first."""
    parts: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for file in sorted(sizes):
        if not file.lower().endswith(".gguf") or is_beside(PurePosixPath(file).name):
            continue
        match = _PART.fullmatch(file)
        stem = file[: -len(".gguf")] if match is None else match["stem"]
        parts.setdefault(stem, {})[file] = sizes[file]
        totals[stem] = 1 if match is None else int(match["total"])
    models = [GGUFModel(stem, tuple(found), sum(found.values()), totals[stem]) for stem, found in parts.items()]
    return sorted(models, key=lambda model: (model.size, model.stem))


def matching(models: Iterable[GGUFModel], tag: str | None, file: str | None) -> list[GGUFModel]:
    """Those that a tag or a file's name means; all where neither is given."""
    if file is not None:
        return [model for model in models if any(file in (each, PurePosixPath(each).name) for each in model.files)]
    return [model for model in models if tag is None or model.is_called(tag)]


def choose(repo: str, models: Sequence[GGUFModel], tag: str | None, file: str | None) -> GGUFModel:
    """The one that is meant; a CheckpointError says what there is where that is none or several."""
    found = matching(models, tag, file)
    if not found:
        asked = f"no file {file!r}" if file is not None else f"no GGUF model of quantization {tag!r}"
        raise CheckpointError(f"{repo!r} has {asked} on the hub; it has {_listed(models)}.")
    if len(found) > 1:
        raise SeveralModels(
            f"{repo!r} has {len(found)} GGUF models{'' if tag is None else f' called {tag}'} on the hub: "
            f"{_listed(found)}; choose one as {repo}:{_example(found)}, or with `quire pull {repo} --file NAME`.",
            found,
        )
    [model] = found
    if not model.is_complete:
        raise CheckpointError(
            f"{repo!r} has {len(model.files)} of the {model.num_parts} parts of {model.stem}; choose another file."
        )
    return model


def _example(models: Sequence[GGUFModel]) -> str:
    tags = [model.tag for model in models if model.tag is not None]
    return next((tag for tag in tags if tag.upper() == "Q4_K_M"), tags[0] if tags else "TAG")


def _listed(models: Sequence[GGUFModel]) -> str:
    shown = ", ".join(model.files[0] for model in models[:_SHOW]) or "no .gguf files"
    return shown if len(models) <= _SHOW else f"{shown} and {len(models) - _SHOW} more"
