"""Sizes of ggml types."""

import gguf
import pytest

from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED, ggml_type


def test_bits_a_weight_as_the_formats_are_known_by() -> None:
    bits = {2: 4.5, 3: 5, 8: 8.5, 10: 2.625, 11: 3.4375, 12: 4.5, 13: 5.5, 14: 6.5625, 16: 2.0625, 23: 4.25, 39: 4.25}
    for number, expected in bits.items():
        kind = ggml_type(number, "t", "f")
        assert kind.bytes_of(kind.block) * 8 / kind.block == expected


def test_numbers_and_sizes_as_in_the_gguf_package() -> None:
    for number, sizes in gguf.GGML_QUANT_SIZES.items():
        kind = ggml_type(number.value, "t", "f")
        if number.name != "Q8_1":  # ggml has made its two float32 fields halves; no file holds it
            assert (kind.block, kind.num_bytes) == sizes
        if kind.is_packed:
            assert kind.name == number.name
            assert PACKED[kind.name] is kind


@pytest.mark.parametrize(
    ("number", "message"),
    [(4, "type 4, which GGUF has dropped"), (999, "type 999, but known types end at 41")],
)
def test_unknown_numbers_are_refused(number: int, message: str) -> None:
    with pytest.raises(CheckpointError, match=f"model.gguf: tensor 't' has {message}"):
        ggml_type(number, "t", "model.gguf")
