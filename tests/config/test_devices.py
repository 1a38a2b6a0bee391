"""Devices are found by name, with another size where one is given."""

import pytest

from quire.config.devices import DEVICES, dtypes_of, find_device
from quire.core.errors import ConfigError


def test_device_is_found_whatever_its_case() -> None:
    assert find_device("H200") is DEVICES["h200"]
    assert DEVICES["h200"].bandwidth == pytest.approx(4.3e12)
    assert DEVICES["h200"].flops == pytest.approx(790e12)


def test_unknown_device_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"--device is 'a100-80'.* Did you mean 'a100-80gb'\?"):
        find_device("a100-80")


def test_memory_is_replaced() -> None:
    device = find_device("h100", "24GB")
    assert device.memory_bytes == 24_000_000_000
    assert device.host_memory_bytes == DEVICES["h100"].host_memory_bytes
    assert find_device("cpu", "8GiB").host_memory_bytes == 8 * 2**30


def test_bad_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="--device-memory is '24'"):
        find_device("h100", "24")


def test_presets_are_sane() -> None:
    for name, device in DEVICES.items():
        assert device.name == name
        assert device.memory_bytes > 2**33
        assert min(device.bandwidth, device.flops, device.host_bandwidth, device.step_overhead) > 0


def test_what_generations_of_gpus_compute_in() -> None:
    assert "bfloat16" not in dtypes_of((7, 5))
    assert dtypes_of((8, 6)) == DEVICES["a10g"].dtypes == DEVICES["a100-80gb"].dtypes
    assert dtypes_of((8, 9)) == DEVICES["l4"].dtypes
    assert dtypes_of((9, 0)) == dtypes_of((10, 0)) == DEVICES["h100"].dtypes
    assert "float8_e4m3fn" in dtypes_of((9, 0)), "else --kv-cache-dtype fp8 is refused"
