"""Where the server is that is measured."""

from quire.core.errors import ConfigError
from quire.core.http_address import HttpAddress, parse_http_address


def parse_address(url: str) -> HttpAddress:
    """What `--url` names."""
    address = parse_http_address(url)
    if address is None:
        raise ConfigError(f"--url is {url!r}, but it must be like http://127.0.0.1:8000.")
    return address
