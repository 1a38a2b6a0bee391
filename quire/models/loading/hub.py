"""Models on the hub: their headers by range requests, without any weights, and their files.

The only file of this room that imports huggingface_hub, and only when a hub id is asked for.
"""

import glob
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.folder import CONFIG
from quire.models.loading.gguf_choice import choose, gguf_models, matching, mmproj_beside
from quire.models.loading.json_object import read_json_object
from quire.models.loading.safetensors_header import stored_tensor
from quire.models.loading.spans import TensorSpan

_PATIENCE = 10.0
"""Seconds to wait for the hub's first answer."""
_FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.txt"]
"""What a model needs; never pickled weights."""
_HUB_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?)(:(?P<tag>[A-Za-z0-9][\w.-]{0,63}))?"
)
_MOST_FILES = 100_000
"""Of a repository that are looked at."""


@dataclass(frozen=True, slots=True)
class HubHeader:
    """What the hub tells of a model without its weights."""

    config: dict[str, Any]
    tensors: tuple[TensorSpan, ...]


def is_hub_id(name: str) -> bool:
    """Whether `name` is spelled like `owner/model` or `model`, perhaps with `:Q4_K_M` behind, and not like a file."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith((".gguf", ".safetensors", ".json", ".bin"))


def split_tag(name: str) -> tuple[str, str | None]:
    """A hub id as the repository and the quantization of one of its GGUF files: `owner/model:Q4_K_M`."""
    match = _HUB_ID.fullmatch(name)
    assert match is not None, "is_hub_id comes first"
    return match["repo"], match["tag"]


def fetch_header(repo: str, revision: str | None) -> HubHeader:
    """Ask the hub; a CheckpointError says why it did not answer."""
    if split_tag(repo)[1] is not None:
        raise CheckpointError(f"{repo!r} is a GGUF file, whose header is read here; run `quire pull {repo}` first.")
    import huggingface_hub
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        _reach()
        config = huggingface_hub.hf_hub_download(repo, CONFIG, revision=revision)
        metadata = huggingface_hub.get_safetensors_metadata(repo, revision=revision)
    except Exception as error:  # the library lets errors of whichever HTTP client it was built on through
        raise CheckpointError(_reason(repo, revision, error)) from error
    tensors = tuple(
        stored_tensor(name, _entry(info), 0, f"{repo}/{file}")
        for file, header in metadata.files_metadata.items()
        for name, info in header.tensors.items()
    )
    return HubHeader(read_json_object(Path(config)), tensors)


def download(name: str, revision: str | None, file: str | None = None) -> Path:
    """The folder with a model's files, or its GGUF file (the first of several parts), downloaded as far as they are not
    here; an interrupted download goes on. Of several GGUF models the tag in `name` or `file` names one; the vision
    encoder beside it comes along.
    """
    import huggingface_hub

    repo, tag = split_tag(name)
    here = cached_folder(name, revision, file)
    try:
        if here is None or not huggingface_hub.constants.HF_HUB_OFFLINE:
            _reach()
        if tag is None and file is None:
            folder = Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=_FILES))
            sizes = {} if any(folder.glob("*.safetensors")) else _ggufs_on_hub(repo, revision)
            if not gguf_models(sizes):
                return folder
        else:
            sizes = _ggufs_on_hub(repo, revision)
        chosen = choose(repo, gguf_models(sizes), tag, file)
        eyes = mmproj_beside(chosen.files[0], sizes)
        patterns = [glob.escape(each) for each in (*chosen.files, *(() if eyes is None else (eyes,)))]
        folder = Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=patterns))
        return folder / chosen.files[0]
    except CheckpointError:
        raise
    except Exception as error:  # the library lets errors of whichever HTTP client it was built on through
        if here is not None:
            return here
        raise CheckpointError(_reason(repo, revision, error)) from error


def download_files(repo: str, revision: str | None, files: Sequence[str]) -> Path:
    """The folder with these files of a repository and no others, downloaded as far as they are not here."""
    import huggingface_hub

    here = _cached_files(repo, revision, files)
    try:
        if here is None or not huggingface_hub.constants.HF_HUB_OFFLINE:
            _reach()
        patterns = [glob.escape(file) for file in files]
        folder = Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the library lets errors of whichever HTTP client it was built on through
        if here is not None:
            return here
        raise CheckpointError(_reason(repo, revision, error)) from error
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise CheckpointError(f"{repo!r} has no {' and no '.join(missing)} on the hub.")
    return folder


def _cached_files(repo: str, revision: str | None, files: Sequence[str]) -> Path | None:
    """The folder of an earlier download that has all of them."""
    import huggingface_hub

    found = [huggingface_hub.try_to_load_from_cache(repo, file, revision=revision) for file in files]
    return Path(str(found[0])).parent if all(isinstance(each, str) for each in found) else None


def cached_folder(name: str, revision: str | None, file: str | None = None) -> Path | None:
    """The folder of an earlier download of the whole model, or the GGUF file that it is, if there is one."""
    import huggingface_hub

    repo, tag = split_tag(name)
    if tag is None and file is None:
        found = huggingface_hub.try_to_load_from_cache(repo, CONFIG, revision=revision)
        folder = Path(found).parent if isinstance(found, str) else None
        if folder is not None and any(folder.glob("*.safetensors")):
            return folder
    return _cached_gguf(repo, revision, tag, file)


def _cached_gguf(repo: str, revision: str | None, tag: str | None, file: str | None) -> Path | None:
    from huggingface_hub import constants

    storage = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"
    ref = storage / "refs" / (revision or "main")
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    if not commit:
        return None
    folder = storage / "snapshots" / commit
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*.gguf")}
    found = matching(gguf_models(sizes), tag, file)
    return folder / found[0].files[0] if len(found) == 1 and found[0].is_complete else None


def _ggufs_on_hub(repo: str, revision: str | None) -> dict[str, int]:
    """The bytes of each GGUF file of a repository."""
    import huggingface_hub

    files = islice(huggingface_hub.HfApi().list_repo_tree(repo, recursive=True, revision=revision), _MOST_FILES)
    sizes = {each.path: each.size for each in files if hasattr(each, "size")}
    return {path: size for path, size in sizes.items() if path.lower().endswith(".gguf")}


def _reach() -> None:
    """Ask for the hub's front page once, so that an unreachable hub is an error now and not after half a minute."""
    from huggingface_hub import constants, get_session

    get_session().head(constants.ENDPOINT, timeout=_PATIENCE)


def _entry(info: Any) -> dict[str, Any]:
    return {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": list(info.data_offsets)}


def _reason(repo: str, revision: str | None, error: Exception) -> str:
    """One line for whatever went wrong, told apart by the names of the hub's own error classes."""
    what = f"{repo!r}" + (f" at revision {revision!r}" if revision else "")
    known = {
        "OfflineModeIsEnabled": f"{what} is no file or folder here, and HF_HUB_OFFLINE rules out the hub; unset it.",
        "GatedRepoError": f"{what} is gated on the hub; accept its terms there and log in with `hf auth login`.",
        "RepositoryNotFoundError": f"{what} is no file or folder here and no model on the hub; check the spelling.",
        "RevisionNotFoundError": f"{what} is not on the hub; check --revision.",
        "NotASafetensorsRepoError": f"{what} has no .safetensors files on the hub; quire reads .safetensors and .gguf.",
        "SafetensorsParsingError": f"{what} has a .safetensors header on the hub that cannot be read.",
        "RemoteEntryNotFoundError": f"{what} has no {CONFIG} on the hub; `quire pull` gets its .gguf file.",
    }
    for kind in type(error).__mro__:
        if kind.__name__ in known:
            return known[kind.__name__]
    cause = (str(error).splitlines() or [""])[0][:120]
    return (
        f"{what} is no file or folder here, and the hub could not be asked ({type(error).__name__}: {cause}); "
        "check the path and the network, or download the model and give its folder."
    )
