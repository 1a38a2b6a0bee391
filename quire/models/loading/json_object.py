"""JSON objects from files that may say anything: bounded in size, checked for shape, each failure a CheckpointError."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError

MOST_JSON_BYTES = 100_000_000
"""The safetensors format's own limit on its header; index and config files are far smaller."""


def parse_json_object(data: bytes, source: str) -> dict[str, Any]:
    """The object that `data` holds; `source` names it in errors."""
    try:
        value = json.loads(data, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise CheckpointError(f"{source} is nested too deeply to be a checkpoint's JSON; download it again.") from None
    except ValueError as error:
        raise CheckpointError(f"{source} is not valid JSON ({error}); download it again.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{source} holds a {type(value).__name__}, but a JSON object is expected.")
    return value


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in file `path`."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None
    if len(data) > MOST_JSON_BYTES:
        raise CheckpointError(f"{path} is larger than {MOST_JSON_BYTES:,} bytes, which no checkpoint's JSON needs.")
    return parse_json_object(data, str(path))


def is_count(value: object) -> bool:
    """Whether a JSON value is a whole number from 0 to what 63 bits hold; true and false are not numbers here."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"key {counts.most_common(1)[0][0]!r} appears twice")
    return result
