"""Where traces go is an address, or nothing."""

import pytest

from quire.config.observe import ObserveConfig
from quire.core.errors import ConfigError


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:4318", "grpc://host:4317", "http://", "http://host:port", "http://[::1", "file:///etc"]
)
def test_what_is_no_address_is_refused_by_flag(address: str) -> None:
    with pytest.raises(ConfigError, match=r"--otlp-traces-endpoint is .* must be an http") as caught:
        ObserveConfig(otlp_traces_endpoint=address)
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:4318", "https://collector.example/v1/traces"])
def test_addresses_are_kept(address: str | None) -> None:
    assert ObserveConfig(otlp_traces_endpoint=address).otlp_traces_endpoint == address
