"""The store's secret: random bytes that live as long as the folder does, to seal what clients keep."""

import os
import secrets
from pathlib import Path

_BYTES = 32


def read_secret(path: Path) -> bytes:
    """Of the file, which only its owner may read; makes it where there is none. Several servers may share a folder."""
    if not path.exists():
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)  # whoever is first wins, and all read the same
        except FileExistsError:
            pass
        finally:
            new.unlink()
    found = path.read_bytes()
    if len(found) != _BYTES:
        raise OSError(f"{path.name} has {len(found)} bytes, and a secret has {_BYTES}; remove it to get another")
    return found
