"""What `--url` names, and how a mistake in it is told."""

import pytest

from quire.bench.http.address import parse_address
from quire.core.errors import ConfigError


def test_a_url_is_taken_apart() -> None:
    assert parse_address("http://host:1/llm").path == "/llm"


@pytest.mark.parametrize("url", ["", "host:8000", "http://me:secret@host"])
def test_what_is_no_url_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        parse_address(url)
