"""How GGUF numbers its tensor types, and how many elements and bytes one block of each holds."""

from dataclasses import dataclass

from quire.core.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class GGMLType:
    """A tensor type: elements are stored in blocks of `block` elements and `num_bytes` bytes."""

    name: str
    block: int
    num_bytes: int

    def bytes_of(self, num_elements: int) -> int:
        return num_elements // self.block * self.num_bytes


# Plain types carry torch's names. q8_1 and q8_k only ever hold activations; they are here so that no number is unknown.
_TYPES: dict[int, GGMLType] = {
    0: GGMLType("float32", 1, 4),
    1: GGMLType("float16", 1, 2),
    2: GGMLType("q4_0", 32, 18),
    3: GGMLType("q4_1", 32, 20),
    6: GGMLType("q5_0", 32, 22),
    7: GGMLType("q5_1", 32, 24),
    8: GGMLType("q8_0", 32, 34),
    9: GGMLType("q8_1", 32, 36),
    10: GGMLType("q2_k", 256, 84),
    11: GGMLType("q3_k", 256, 110),
    12: GGMLType("q4_k", 256, 144),
    13: GGMLType("q5_k", 256, 176),
    14: GGMLType("q6_k", 256, 210),
    15: GGMLType("q8_k", 256, 292),
    16: GGMLType("iq2_xxs", 256, 66),
    17: GGMLType("iq2_xs", 256, 74),
    18: GGMLType("iq3_xxs", 256, 98),
    19: GGMLType("iq1_s", 256, 50),
    20: GGMLType("iq4_nl", 32, 18),
    21: GGMLType("iq3_s", 256, 110),
    22: GGMLType("iq2_s", 256, 82),
    23: GGMLType("iq4_xs", 256, 136),
    24: GGMLType("int8", 1, 1),
    25: GGMLType("int16", 1, 2),
    26: GGMLType("int32", 1, 4),
    27: GGMLType("int64", 1, 8),
    28: GGMLType("float64", 1, 8),
    29: GGMLType("iq1_m", 256, 56),
    30: GGMLType("bfloat16", 1, 2),
    34: GGMLType("tq1_0", 256, 54),
    35: GGMLType("tq2_0", 256, 66),
    39: GGMLType("mxfp4", 32, 17),
    40: GGMLType("nvfp4", 64, 36),
    41: GGMLType("q1_0", 128, 18),
}

_REMOVED = (4, 5, 31, 32, 33, 36, 37, 38)


def ggml_type(number: int, tensor: str, source: str) -> GGMLType:
    """The type with this number; `tensor` and `source` are for the error."""
    if number in _REMOVED:
        raise CheckpointError(
            f"{source}: tensor {tensor!r} has type {number}, which GGUF has dropped; convert the model again."
        )
    if number not in _TYPES:
        raise CheckpointError(
            f"{source}: tensor {tensor!r} has type {number}, but known types end at {max(_TYPES)}; "
            "the file is damaged or newer than quire."
        )
    return _TYPES[number]
