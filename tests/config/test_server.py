"""The server's settings: lists in one text, and a key that shows up nowhere."""

import dataclasses
import re
from typing import Any

import pytest

from quire.config.engine import EngineConfig
from quire.config.fields import check_value
from quire.config.router import RouterConfig
from quire.config.server import ServerConfig
from quire.core.errors import ConfigError

SECRET = "swordfish-29"


def test_lists_are_texts_with_commas() -> None:
    config = ServerConfig(served_model_name="big, small", allowed_origins="https://a.org,http://b.org:8080")
    assert config.names() == ("big", "small")
    assert config.origins() == ("https://a.org", "http://b.org:8080")
    assert ServerConfig(allowed_origins="*").origins() == ("*",)
    assert ServerConfig(allowed_hosts="a.org, b").hosts() == ("a.org", "b")
    assert ServerConfig().hosts() == ServerConfig().names() == ServerConfig().origins() == ()


def test_by_default_only_this_machine_reaches_it() -> None:
    assert ServerConfig().host == RouterConfig().host == "127.0.0.1"


def test_the_key_is_never_shown() -> None:
    config = EngineConfig(server=ServerConfig(api_key=SECRET))
    assert config.server.api_key == SECRET
    assert SECRET not in repr(config)
    assert SECRET not in str(config.server)
    assert dataclasses.replace(config.server, port=0).api_key == SECRET


@pytest.mark.parametrize("key", ["", SECRET + " ", SECRET + "\n", SECRET + "é", "\x7f" + SECRET])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(ConfigError, match="--api-key") as caught:
        ServerConfig(api_key=key)
    assert SECRET not in str(caught.value)
    assert "quire key" in str(caught.value)


def test_a_key_of_the_wrong_type_is_refused_unseen() -> None:
    with pytest.raises(ConfigError, match=r"api_key is a int, but it must be text") as caught:
        check_value(ServerConfig, "api_key", 123456789)
    assert "123456789" not in str(caught.value)


def test_a_private_key_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match="--ssl-keyfile has no effect without --ssl-certfile"):
        ServerConfig(ssl_keyfile="key.pem")
    assert ServerConfig(ssl_keyfile="key.pem", ssl_certfile="cert.pem").ssl_certfile == "cert.pem"


@pytest.mark.parametrize("engines", ["inline", "tcp://10.0.0.5:7700"])
def test_replicas_beside_engines_of_another_kind_are_refused(engines: str) -> None:
    with pytest.raises(ConfigError, match="replicas is 2"):
        ServerConfig(engines=engines, replicas=2)
    assert ServerConfig(engines=engines).num_engines == 1


def test_every_address_is_an_engine() -> None:
    assert ServerConfig(engines="tcp://a:1, tcp://b:2").engine_addresses() == ("tcp://a:1", "tcp://b:2")
    assert ServerConfig(replicas=3).num_engines == 3


def test_roles_come_together_and_say_how_many_engines_there_are() -> None:
    config = ServerConfig(prefill_engines=2, decode_engines=1)
    assert (config.num_engines, config.num_local_engines, config.exchanges_kv) == (3, 3, True)
    assert [config.role_of(number) for number in range(3)] == ["prefill", "prefill", "decode"]
    assert not ServerConfig(replicas=2).exchanges_kv
    assert ServerConfig(role="decode").exchanges_kv


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"prefill_engines": 2}, "--prefill-engines is 2, but --decode-engines is 0"),
        ({"decode_engines": 1}, "--decode-engines is 1, but --prefill-engines is 0"),
        ({"prefill_engines": -1, "decode_engines": 1}, "--prefill-engines is -1"),
        ({"prefill_engines": 1, "decode_engines": 1, "replicas": 2}, "--replicas is 2"),
        ({"prefill_engines": 1, "decode_engines": 1, "engines": "tcp://a:1"}, "quire engine --role"),
    ],
)
def test_roles_that_contradict_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        ServerConfig(**given)
