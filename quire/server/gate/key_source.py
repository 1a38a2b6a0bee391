"""Where keys come from: --api-key and the --keys file, read at the start and again when asked."""

import logging
from pathlib import Path

from quire.core.errors import ConfigError
from quire.server.gate.keys import Key, KeyRing, master_key
from quire.server.gate.usage_table import UsageTable

_log = logging.getLogger(__name__)


class KeySource:
    """Holds the ring that is good now; without a key or a file there is none, and nobody is asked for a key."""

    def __init__(self, api_key: str | None, path: Path | None, usage: UsageTable | None = None) -> None:
        self._master = [master_key(api_key)] if api_key is not None else []
        self._path = path
        self.ring: KeyRing | None = None
        if self._master or path is not None:
            self.ring = KeyRing(self._keys(), usage=usage)

    def reload(self) -> bool:
        """Read the file again; one that is wrong changes nothing. False where there was nothing to do or it failed."""
        if self._path is None or self.ring is None:
            return False
        try:
            self.ring.replace(self._keys())
        except ConfigError as error:
            _log.error("keys stay as they were: %s", error)
            return False
        _log.info("read %d keys again from %s", len(self.ring), self._path)
        return True

    def _keys(self) -> list[Key]:
        if self._path is None:
            return self._master
        from quire.server.gate.keys_file import read_keys, warning_about

        keys = read_keys(self._path)
        warning = warning_about(self._path)
        if warning:
            _log.warning("%s", warning)
        return self._master + keys
