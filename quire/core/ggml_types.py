"""The tensor types of ggml: their numbers in a GGUF file, and how many elements and bytes one block of each holds.

The one place that says so; readers of files, kernels and reference ops all ask here.
"""

from dataclasses import dataclass

from quire.core.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class GGMLType:
    """A tensor type: elements are stored in blocks of `block` elements and `num_bytes` bytes."""

    name: str
    """Torch's name where torch has the type, else ggml's own, such as `Q4_K`."""
    block: int
    num_bytes: int

    @property
    def is_packed(self) -> bool:
        """Whether an element is smaller than a block, so that torch has no dtype for it."""
        return self.block > 1

    def bytes_of(self, num_elements: int) -> int:
        return num_elements // self.block * self.num_bytes


# Q8_1 and Q8_K only ever hold activations; they are here so that no number is unknown.
_BY_NUMBER: dict[int, GGMLType] = {
    0: GGMLType("float32", 1, 4),
    1: GGMLType("float16", 1, 2),
    2: GGMLType("Q4_0", 32, 18),
    3: GGMLType("Q4_1", 32, 20),
    6: GGMLType("Q5_0", 32, 22),
    7: GGMLType("Q5_1", 32, 24),
    8: GGMLType("Q8_0", 32, 34),
    9: GGMLType("Q8_1", 32, 36),
    10: GGMLType("Q2_K", 256, 84),
    11: GGMLType("Q3_K", 256, 110),
    12: GGMLType("Q4_K", 256, 144),
    13: GGMLType("Q5_K", 256, 176),
    14: GGMLType("Q6_K", 256, 210),
    15: GGMLType("Q8_K", 256, 292),
    16: GGMLType("IQ2_XXS", 256, 66),
    17: GGMLType("IQ2_XS", 256, 74),
    18: GGMLType("IQ3_XXS", 256, 98),
    19: GGMLType("IQ1_S", 256, 50),
    20: GGMLType("IQ4_NL", 32, 18),
    21: GGMLType("IQ3_S", 256, 110),
    22: GGMLType("IQ2_S", 256, 82),
    23: GGMLType("IQ4_XS", 256, 136),
    24: GGMLType("int8", 1, 1),
    25: GGMLType("int16", 1, 2),
    26: GGMLType("int32", 1, 4),
    27: GGMLType("int64", 1, 8),
    28: GGMLType("float64", 1, 8),
    29: GGMLType("IQ1_M", 256, 56),
    30: GGMLType("bfloat16", 1, 2),
    34: GGMLType("TQ1_0", 256, 54),
    35: GGMLType("TQ2_0", 256, 66),
    39: GGMLType("MXFP4", 32, 17),
    40: GGMLType("NVFP4", 64, 36),
    41: GGMLType("Q1_0", 128, 18),
}

_REMOVED = (4, 5, 31, 32, 33, 36, 37, 38)

PACKED: dict[str, GGMLType] = {kind.name: kind for kind in _BY_NUMBER.values() if kind.is_packed}
"""The types that torch has no dtype for, by name."""

NUMBERS: dict[str, int] = {kind.name: number for number, kind in _BY_NUMBER.items()}
"""What a GGUF file calls each type."""


def ggml_type_named(name: str) -> GGMLType:
    """The type of a name that is known."""
    return _BY_NUMBER[NUMBERS[name]]


def ggml_type(number: int, tensor: str, source: str) -> GGMLType:
    """The type with this number; `tensor` and `source` are for the error."""
    if number in _REMOVED:
        raise CheckpointError(
            f"{source}: tensor {tensor!r} has type {number}, which GGUF has dropped; convert the model again."
        )
    if number not in _BY_NUMBER:
        raise CheckpointError(
            f"{source}: tensor {tensor!r} has type {number}, but known types end at {max(_BY_NUMBER)}; "
            "the file is damaged or newer than quire."
        )
    return _BY_NUMBER[number]


IN_PLANES = {
    "Q4_0": 18,
    "Q4_1": 20,
    "Q5_0": 22,
    "Q5_1": 24,
    "Q8_0": 34,
    "Q2_K": 100,
    "Q3_K": 114,
    "Q4_K": 148,
    "Q5_K": 180,
    "Q6_K": 210,
    "IQ2_XXS": 106,
    "IQ2_XS": 114,
    "IQ2_S": 114,
    "IQ3_XXS": 138,
    "IQ3_S": 138,
    "IQ4_NL": 18,
    "IQ4_XS": 138,
    "TQ1_0": 68,
    "TQ2_0": 68,
    "MXFP4": 18,
    "NVFP4": 40,
}
"""Bytes of a block in planes, for types that kernels of GPUs multiply by as they are packed; others are expanded."""


def bytes_in_planes(kind: str, num_elements: int) -> int:
    """Of a type in `IN_PLANES`."""
    return num_elements // PACKED[kind].block * IN_PLANES[kind]
