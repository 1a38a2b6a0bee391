"""Names of dtypes, spelled as torch spells them, and their bytes an element. Formats that pack blocks are not here."""

from quire.core.errors import ConfigError

DTYPE_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}

COMPUTE_DTYPES = ("float32", "float16", "bfloat16")
"""Dtypes a model can run in; weights stored as any plain float are converted to the one that was chosen."""

FP8_DTYPES = ("float8_e4m3fn", "float8_e5m2")

PLAIN_FLOATS = ("float64", *COMPUTE_DTYPES)


def dtype_bytes(name: str) -> int:
    """Bytes of one element."""
    if name not in DTYPE_BYTES:
        raise ConfigError(f"dtype {name!r} has no fixed size an element; known are {', '.join(DTYPE_BYTES)}.")
    return DTYPE_BYTES[name]
