"""Vectors as bits, as Cohere packs them."""

from quire.protocol.cohere.embed_body import FORMS


def test_bits_are_packed_from_the_highest() -> None:
    vectors = [[1.0, -1.0, 0.0, -0.5, 2.0, 3.0, -4.0, 0.25] * 2]
    assert FORMS["ubinary"](vectors) == [[0b10101101] * 2]
    assert FORMS["binary"](vectors) == [[0b10101101 - 128] * 2]
