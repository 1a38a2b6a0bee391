"""Sizes are read with their unit and printed in the one that reads best."""

import pytest

from quire.config.sizes import binary_size, decimal_size, parse_size
from quire.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GB", 24 * 10**9),
        ("80GiB", 80 * 2**30),
        ("512MiB", 512 * 2**20),
        ("1.5 tb", 1_500_000_000_000),
        (" 3kib ", 3072),
        ("7B", 7),
    ],
)
def test_size_is_read(text: str, size: int) -> None:
    assert parse_size(text, "--x") == size


@pytest.mark.parametrize("text", ["", "24", "24G", "GB", "-1GB", "1e9GB", "24GBs", "5iB", "0GB", "0.1B", "nanGB"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--x is .*24GB"):
        parse_size(text, "--x")


def test_sizes_are_printed() -> None:
    assert decimal_size(16_060_522_496) == "16.06 GB"
    assert decimal_size(-6_490_000_000) == "-6.49 GB"
    assert decimal_size(30_080_000) == "30.08 MB"
    assert decimal_size(999) == "999 B"
    assert binary_size(131_072) == "128 KiB"
    assert binary_size(2**21) == "2 MiB"
    assert binary_size(100) == "100 B"
    assert binary_size(3 * 2**40) == "3 TiB"
