"""What vLLM measures too is found under its names, where that is asked for, with the same numbers."""

from prometheus_client.parser import text_string_to_metric_families

from quire.observe import catalog
from quire.observe.vllm_names import VLLM_NAMES
from tests.observe.samples import busy_metrics


def families(*, vllm_names: bool) -> dict[str, list[tuple[str, dict[str, str], float]]]:
    text = busy_metrics().render(vllm_names=vllm_names)[0].decode()
    return {
        family.name: [(sample.name, sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_nothing_has_a_second_name_unless_that_is_asked_for() -> None:
    assert not [name for name in families(vllm_names=False) if name.startswith("vllm:")]


def test_both_names_tell_the_same() -> None:
    found = families(vllm_names=True)
    for name, second in VLLM_NAMES.items():
        end = "_total" if catalog.BY_NAME[name].kind == "counter" else ""
        ours, theirs = name.removesuffix(end), second.removesuffix(end)
        assert found[ours], ours
        renamed = [(sample.replace(ours, theirs, 1), labels, value) for sample, labels, value in found[ours]]
        assert found[theirs] == renamed, theirs


def test_an_autoscaler_of_vllm_finds_its_gauges() -> None:
    found = families(vllm_names=True)
    assert [value for _, _, value in found["vllm:num_requests_waiting"]] == [3]
    assert [value for _, _, value in found["vllm:kv_cache_usage_perc"]] == [0.25]
    assert ("vllm:iteration_tokens_total_count", {"model_name": "tiny", "engine": "0"}, 1) in found[
        "vllm:iteration_tokens_total"
    ]
