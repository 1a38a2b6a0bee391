"""The config and tensor headers of a model on the hub, by range requests: no weight is downloaded.

The only file of this room that imports huggingface_hub, and only when a hub id is asked for.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.folder import CONFIG
from quire.models.loading.json_object import read_json_object
from quire.models.loading.safetensors_header import stored_tensor
from quire.models.loading.spans import TensorSpan

_PATIENCE = 10.0
"""Seconds to wait for the hub's first answer."""
_FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.txt"]
"""What a model needs; never pickled weights."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


@dataclass(frozen=True, slots=True)
class HubHeader:
    """What the hub tells of a model without its weights."""

    config: dict[str, Any]
    tensors: tuple[TensorSpan, ...]


def is_hub_id(name: str) -> bool:
    """Whether `name` is spelled like `owner/model` or `model`, and not like a file."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith((".gguf", ".safetensors", ".json", ".bin"))


def fetch_header(repo: str, revision: str | None) -> HubHeader:
    """Ask the hub; a CheckpointError says why it did not answer."""
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


def download(repo: str, revision: str | None) -> Path:
    """The folder with a model's files, downloaded as far as they are not here; an interrupted download goes on."""
    import huggingface_hub

    folder = cached_folder(repo, revision)
    try:
        if folder is None or not huggingface_hub.constants.HF_HUB_OFFLINE:
            _reach()
        return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=_FILES))
    except Exception as error:  # the library lets errors of whichever HTTP client it was built on through
        if folder is not None:
            return folder
        raise CheckpointError(_reason(repo, revision, error)) from error


def cached_folder(repo: str, revision: str | None) -> Path | None:
    """The folder of an earlier download of the whole model, if there is one."""
    import huggingface_hub

    found = huggingface_hub.try_to_load_from_cache(repo, CONFIG, revision=revision)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    return folder if any(folder.glob("*.safetensors")) else None


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
        "RemoteEntryNotFoundError": f"{what} has no {CONFIG} on the hub; download its .gguf file if it has one.",
    }
    for kind in type(error).__mro__:
        if kind.__name__ in known:
            return known[kind.__name__]
    cause = (str(error).splitlines() or [""])[0][:120]
    return (
        f"{what} is no file or folder here, and the hub could not be asked ({type(error).__name__}: {cause}); "
        "check the path and the network, or download the model and give its folder."
    )
