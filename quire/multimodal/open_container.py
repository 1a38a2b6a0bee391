"""Opening what ffmpeg reads, whichever PyAV is installed."""

import io
from typing import Any


def open_container(data: bytes, form: str) -> Any:
    """Raises ImportError where there is no PyAV."""
    import av

    # A title need not be UTF-8. From 19 on PyAV escapes such bytes; before, they are an error unless it ignores them.
    escapes = int(av.__version__.partition(".")[0]) >= 19
    how: dict[str, Any] = {} if escapes else {"metadata_errors": "ignore"}
    return av.open(io.BytesIO(data), format=form, **how)
