"""AdapterRegistry: the LoRA adapters that requests may name, and where they are. Torch-free."""

import os
import re
from dataclasses import replace as changed
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.lora import LoraConfig
from quire.core.adapter import AdapterRef, LoRARequest
from quire.core.errors import CheckpointError, ConfigError, InvalidRequest
from quire.lora.describe import WEIGHTS, AdapterLimits, describe_adapter
from quire.lora.settings import CONFIG
from quire.models.loading.hub import download_files, is_hub_id, split_tag
from quire.spec.lora import LAYERS, TARGETS
from quire.spec.model import ModelSpec

_NAME = re.compile(r"[A-Za-z0-9][\w./:@+-]{0,199}")
_IN_FOLDER = re.compile(r"[A-Za-z0-9_][\w.@+-]{0,199}")
"""Names of folders: no separators, so none leads out of the folder they are in."""


class AdapterRegistry:
    """Checks an adapter before any request can name it; engines read its numbers when the first does."""

    def __init__(self, spec: ModelSpec, limits: AdapterLimits, folder: Path | None = None) -> None:
        """`folder` is one whose subfolders are adapters, each found when it is first asked for."""
        self._spec = spec
        self._limits = limits
        self._folder = folder
        self._known: dict[str, AdapterRef] = {}
        self._downloaded: dict[str, Path] = {}
        """Folders by hub id, so that the hub is not asked again with every request of a caller's own code."""

    def load(self, name: str, path: str, *, replace: bool = False) -> AdapterRef:
        """Check an adapter and know it by `name` from now on; raises InvalidRequest or CheckpointError."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name[:80]!r} cannot be an adapter's name: letters, digits and ._/:@+- only, 200 at most",
                field="lora_name",
            )
        if name in self._known and not replace:
            raise InvalidRequest(
                f"the adapter {name!r} has already been loaded; unload it, set load_inplace or choose another name",
                field="lora_name",
            )
        folder = locate_adapter(path)
        described = describe_adapter(folder, self._spec, self._limits)
        self._known[name] = AdapterRef(name, str(folder), described.version)
        return self._known[name]

    def asked(self, request: LoRARequest) -> AdapterRef:
        """The adapter that a caller's own code names, which is checked when it is first named."""
        known = self.find(request.lora_name)
        if known is not None and request.lora_path in ("", known.path):
            return known
        folder = self._downloaded.get(request.lora_path) or locate_adapter(request.lora_path)
        if not os.path.isdir(_resolved(request.lora_path)):
            self._downloaded[request.lora_path] = folder
        if known is not None and known.path == str(folder):
            return known
        return self.load(request.lora_name, str(folder), replace=True)

    def remember(self, ref: AdapterRef) -> None:
        """An adapter that another process has checked."""
        self._known[ref.name] = ref

    def unload(self, name: str) -> AdapterRef | None:
        """No request can name it from now on; None where none could."""
        return self._known.pop(name, None)

    def find(self, name: str) -> AdapterRef | None:
        """By its name; looks into the folder for one that is not known yet. Raises CheckpointError for a broken one."""
        known = self._known.get(name)
        if known is not None or self._folder is None or not _IN_FOLDER.fullmatch(name):
            return known
        folder = self._folder / name
        if not (folder / CONFIG).is_file() or not self._is_inside(folder.resolve()):
            return None
        try:
            return self.load(name, str(folder))
        except CheckpointError as error:
            raise CheckpointError(f"the adapter {name!r} cannot be used: {error}") from None

    def known(self) -> list[AdapterRef]:
        """Those that were loaded or asked for."""
        return list(self._known.values())

    def names(self) -> list[str]:
        """All that can be named, those of the folder included."""
        return sorted({*self._known, *self._in_folder()})

    def allowed(self, path: str) -> str:
        """Where a client's path leads, links followed; raises InvalidRequest unless that is in the folder of adapters,
        where there is one."""
        if self._folder is None:
            return path
        # absolute, so that a name that leads nowhere cannot be a hub id: loras/sql is spelled like one
        place = _resolved(path)
        if not self._is_inside(place):
            raise InvalidRequest(
                f"{path[:200]!r} is not in {str(self._folder)!r} (--lora-dir), where adapters come from here",
                field="lora_path",
            )
        return str(place)

    def _is_inside(self, place: Path) -> bool:
        return self._folder is not None and place.is_relative_to(self._folder.resolve())

    def _in_folder(self) -> list[str]:
        if self._folder is None:
            return []
        try:
            return [
                each.name
                for each in self._folder.iterdir()
                if (each / CONFIG).is_file() and _IN_FOLDER.fullmatch(each.name)
            ]
        except OSError:
            return []


class NoSuchAdapter(CheckpointError):
    """Where an adapter was said to be, there is nothing."""


def locate_adapter(path: str) -> Path:
    """A folder as it is, anything else from the hub."""
    folder = _resolved(path)
    if os.path.isdir(folder):
        return folder
    if os.path.exists(folder):
        raise CheckpointError(f"{path!r} is a file; give the folder that holds {CONFIG}.")
    if is_hub_id(path) and split_tag(path)[1] is None:
        return download_files(path, None, (CONFIG, WEIGHTS)).resolve()
    raise NoSuchAdapter(f"{path[:200]!r} is no folder here and no hub id.")


def _resolved(path: str) -> Path:
    """Absolute, links followed."""
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, the home of nobody, a null byte
        raise NoSuchAdapter(f"{path[:200]!r} leads nowhere: {error}.") from None


def open_registry(config: LoraConfig, spec: ModelSpec) -> AdapterRegistry:
    """All adapters that the settings name; raises ConfigError where one cannot be used."""
    folder = None if config.lora_dir is None else Path(config.lora_dir).expanduser()
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--lora-dir is {config.lora_dir!r}, which is no folder.")
    limits = AdapterLimits(config.max_lora_rank, frozenset(settled_targets(config, spec)))
    registry = AdapterRegistry(spec, limits, folder)
    for name, path in config.modules.items():
        try:
            registry.load(name, path)
        except (CheckpointError, InvalidRequest) as error:
            raise ConfigError(f"--lora-modules {name}: {error}") from None
    return registry


def settled_targets(config: LoraConfig, spec: ModelSpec) -> tuple[str, ...]:
    """Kinds of matrices to keep room for: those asked for, or layers and what the named adapters have."""
    if config.targets is not None:
        return config.targets
    everything = AdapterLimits(config.max_lora_rank, frozenset(TARGETS))
    found = {LAYERS}
    for name, path in config.modules.items():
        try:
            found |= describe_adapter(locate_adapter(path), spec, everything).targets
        except CheckpointError as error:
            raise ConfigError(f"--lora-modules {name}: {error}") from None
    return tuple(target for target in TARGETS if target in found)


def with_targets(asked: EngineConfig, spec: ModelSpec) -> EngineConfig:
    """The settings with the kinds of matrices decided that room is kept for."""
    if not asked.lora.enable_lora:
        return asked
    return changed(asked, lora=changed(asked.lora, lora_targets=",".join(settled_targets(asked.lora, spec))))
