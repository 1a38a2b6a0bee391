"""A router's settings: those it shares with a server are the server's, and mistakes are named."""

from dataclasses import fields
from typing import Any

import pytest

from quire.config.router import RouterConfig
from quire.config.server import ServerConfig
from quire.core.errors import ConfigError


def test_what_it_shares_with_a_server_has_the_servers_defaults() -> None:
    server, router = ServerConfig(), RouterConfig()
    shared = {each.name for each in fields(ServerConfig)} & {each.name for each in fields(RouterConfig)}
    assert {"host", "api_key", "keys", "max_body_mb", "routing"} <= shared
    differing = {name for name in shared if getattr(server, name) != getattr(router, name)}
    assert differing == {"port"}  # both may run on one host


def test_members_are_listed() -> None:
    assert RouterConfig(members=" http://a:1, http://b:2,").listed() == ("http://a:1", "http://b:2")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"members_dns": "host"}, "members-dns"),
        ({"members_dns": "host:0"}, "members-dns"),
        ({"members_dns": "http://host:1"}, "members-dns"),
        ({"members_kubernetes": "quire"}, "members-kubernetes"),
        ({"members_kubernetes": "a/b/c"}, "members-kubernetes"),
        ({"members_kubernetes": "a/b?x=1"}, "members-kubernetes"),
        ({"health_timeout": 0.0}, "health-timeout"),
        ({"connect_timeout": float("nan")}, "connect-timeout"),
        ({"outage_timeout": -1.0}, "outage-timeout"),
        ({"member_key": "two words"}, "member-key"),
        ({"members_file": " "}, "members-file"),
        ({"port": 70000}, "port"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RouterConfig(**settings)


def test_a_key_stays_out_of_sight() -> None:
    assert "secret" not in repr(RouterConfig(member_key="secret", api_key="secret"))
    with pytest.raises(ConfigError) as raised:
        RouterConfig(member_key="my secret key")
    assert "secret" not in str(raised.value)
