"""The secret that engines and servers of one application share, as the file that quire takes it from."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def secret_file(secret: str) -> Iterator[str]:
    """Its path; only this user reads it, and it is gone with the block."""
    handle, path = tempfile.mkstemp(prefix="quire-secret-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secret)
        yield path
    finally:
        Path(path).unlink(missing_ok=True)
