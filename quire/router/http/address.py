"""Where a member is."""

from quire.core.errors import ConfigError
from quire.core.http_address import HttpAddress, parse_http_address


def member_address(url: str) -> HttpAddress:
    """Raises ConfigError for anything but http://host:port or https://host:port, with a path or without."""
    address = parse_http_address(url)
    if address is None:
        raise ConfigError(
            f"{url[:200]!r} is no member; write it as http://host:8000 or https://host, without name and password"
        )
    return address
