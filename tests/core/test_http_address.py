"""URLs of servers, taken apart."""

import pytest

from quire.core.http_address import HttpAddress, parse_http_address


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("http://127.0.0.1:8000", HttpAddress("127.0.0.1", 8000, False, ""), "127.0.0.1:8000"),
        ("http://host/v1/", HttpAddress("host", 80, False, ""), "host"),
        ("https://api.example.com/llm/v1", HttpAddress("api.example.com", 443, True, "/llm"), "api.example.com"),
        ("http://[::1]:9/", HttpAddress("::1", 9, False, ""), "[::1]:9"),
    ],
)
def test_urls_are_taken_apart(url: str, address: HttpAddress, authority: str) -> None:
    assert parse_http_address(url) == address
    assert address.authority == authority
    assert parse_http_address(address.url) == address


def test_one_address_has_one_name() -> None:
    ways = [parse_http_address(url) for url in ("https://host", "https://host:443/", "https://host/v1")]
    assert {way.url for way in ways if way is not None} == {"https://host:443"}


@pytest.mark.parametrize(
    "url",
    ["", "host:8000", "ftp://host", "http://", "http://host:99999", "http://host/?a=b", "http://me:secret@host",
     "http://höst", "http://host /"],
)  # fmt: skip
def test_what_is_no_url_is_none(url: str) -> None:
    assert parse_http_address(url) is None
