"""What servers say of themselves."""

import pytest

from quire.bench.gauges import GaugePoint, read_gauges

QUIRE = """# HELP quire_num_requests_running x
# TYPE quire_num_requests_running gauge
quire_num_requests_running{engine="0",model_name="m"} 3.0
quire_num_requests_running{engine="1",model_name="m"} 4.0
quire_num_requests_waiting{engine="0",model_name="m"} 1.0
quire_kv_cache_usage_perc{engine="0",model_name="m"} 0.25
quire_kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"""
VLLM = """vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{x="y"} 0.125
"""
LLAMA = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 5\n"


@pytest.mark.parametrize(
    ("page", "point"),
    [
        (QUIRE, GaugePoint(2.0, 7.0, 1.0, 0.5)),
        (VLLM, GaugePoint(2.0, 2.0, 0.0, 0.125)),
        (LLAMA, GaugePoint(2.0, 1.0, 5.0, None)),
        ("python_info 1\n", None),
        ("<html>", None),
    ],
)
def test_pages(page: str, point: GaugePoint | None) -> None:
    assert read_gauges(page, 2.0) == point
