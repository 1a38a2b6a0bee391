"""URLs of servers."""

import pytest

from quire.bench.http.address import Address, parse_address
from quire.core.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("http://127.0.0.1:8000", Address("127.0.0.1", 8000, False, ""), "127.0.0.1:8000"),
        ("http://host/v1/", Address("host", 80, False, ""), "host"),
        ("https://api.example.com/llm/v1", Address("api.example.com", 443, True, "/llm"), "api.example.com"),
        ("http://[::1]:9/", Address("::1", 9, False, ""), "[::1]:9"),
    ],
)
def test_urls_are_taken_apart(url: str, address: Address, authority: str) -> None:
    assert parse_address(url) == address
    assert address.authority == authority
    assert address.path("/v1/models") == f"{address.base}/v1/models"


@pytest.mark.parametrize("url", ["", "host:8000", "ftp://host", "http://", "http://host:99999", "http://host/?a=b"])
def test_what_is_no_url_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        parse_address(url)
