"""What the front tells is what /metrics says: names, labels, and counts that survive engines."""

import pytest
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from quire.core.stats import EngineStats
from quire.observe import catalog
from quire.observe.metrics import Metrics
from tests.observe.promtool import promtool_complaints
from tests.observe.samples import busy_metrics, finished, names, read, value

VLLM = """
num_requests_running num_requests_waiting kv_cache_usage_perc prompt_tokens_total generation_tokens_total
prompt_tokens_cached_total time_to_first_token_seconds_bucket inter_token_latency_seconds_bucket
request_time_per_output_token_seconds_bucket e2e_request_latency_seconds_bucket request_queue_time_seconds_bucket
request_prefill_time_seconds_bucket request_decode_time_seconds_bucket request_inference_time_seconds_bucket
request_prompt_tokens_bucket request_generation_tokens_bucket request_params_n_bucket request_params_max_tokens_bucket
request_success_total num_preemptions_total prefix_cache_queries_total prefix_cache_hits_total cache_config_info
"""
"""Names that vLLM exports after `vllm:`; not its histogram `iteration_tokens_total`, whose end belongs to counters."""


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("tiny", 1, ["/v1/models", "/v1/files/{file_id}"])


def test_dashboards_made_for_vllm_find_their_names() -> None:
    assert {f"quire_{name}" for name in VLLM.split()} <= names(busy_metrics())


def test_everything_in_the_catalog_is_exported_and_nothing_else_of_ours() -> None:
    ends = {"gauge": ("",), "counter": ("",), "histogram": ("_bucket", "_sum", "_count")}
    wanted = {metric.name + end for metric in catalog.ALL_METRICS for end in ends[metric.kind]}
    assert {name for name in names(busy_metrics()) if name.startswith("quire_")} == wanted


def test_promtool_finds_nothing_to_complain_about() -> None:
    complaints = promtool_complaints(busy_metrics().render("")[0].decode())
    assert complaints == ""


def test_nothing_goes_to_the_global_registry() -> None:
    busy_metrics()
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("quire")]


def test_openmetrics_where_it_is_asked_for() -> None:
    metrics = busy_metrics()
    text, content_type = metrics.render("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
    families = read_openmetrics(text.decode())  # type: ignore[no-untyped-call]
    assert "quire_num_requests_running" in {family.name for family in families}
    assert metrics.render("*/*")[1].startswith("text/plain")


def test_the_balance_of_experts_stays_until_another_is_told() -> None:
    metrics = busy_metrics()
    metrics.engine(0, EngineStats(step=2, total_expert_choices=900))
    assert value(metrics, "quire_expert_load_imbalance", engine="0", layer="1") == 2.5
    assert value(metrics, "quire_expert_hot_share", engine="0", layer="2") == 0.125
    assert value(metrics, "quire_expert_choices_total", engine="0") == 900
    metrics.engine_lost(0, "died")
    assert "quire_expert_hot_share" not in names(metrics)


def test_an_engine_as_it_is() -> None:
    metrics = busy_metrics()
    assert value(metrics, "quire_num_requests_running", engine="0") == 2
    assert value(metrics, "quire_num_requests_waiting", engine="0") == 3
    assert value(metrics, "quire_kv_cache_usage_perc", engine="0") == 0.25
    for state, count in {"free": 25, "used": 25, "cached": 50}.items():
        assert value(metrics, "quire_kv_blocks", engine="0", state=state) == count
    assert value(metrics, "quire_cpu_cache_usage_perc", engine="0") == 0.4
    assert value(metrics, "quire_cpu_kv_blocks", engine="0", state="free") == 6
    assert value(metrics, "quire_front_memory_bytes") > 1_000_000


def test_counts_keep_growing_when_an_engine_is_replaced(metrics: Metrics) -> None:
    metrics.engine(0, EngineStats(step=5, total_prefix_tokens=100, total_prefix_hits=10, total_preemptions_swap=3))
    metrics.engine_lost(0, "died")
    assert value(metrics, "quire_prefix_cache_queries_total", engine="0") == 100
    assert value(metrics, "quire_engine_up", engine="0") == 0
    # The new engine's first report is further on than its predecessor's last.
    metrics.engine(0, EngineStats(step=9, total_prefix_tokens=120, total_prefix_hits=1, total_preemptions_swap=1))
    assert value(metrics, "quire_prefix_cache_queries_total", engine="0") == 220
    assert value(metrics, "quire_prefix_cache_hits_total", engine="0") == 11
    assert value(metrics, "quire_num_preemptions_total", engine="0", mode="swap") == 4
    assert value(metrics, "quire_engine_steps_total", engine="0") == 14
    assert value(metrics, "quire_engine_restarts_total", engine="0", reason="died") == 1
    assert value(metrics, "quire_engine_up", engine="0") == 1


def test_drafts_are_counted_by_method_and_only_where_there_are_any(metrics: Metrics) -> None:
    metrics.engine(0, EngineStats(step=1))
    assert "spec_decode" not in "".join(
        line for line in metrics.render()[0].decode().splitlines() if not line.startswith("#")
    )
    drafted = {"total_drafts": 4, "total_draft_tokens": 16, "total_accepted_tokens": 6}
    metrics.engine(0, EngineStats(step=5, draft_method="ngram", **drafted))
    metrics.engine_lost(0, "died")
    metrics.engine(0, EngineStats(step=9, draft_method="ngram", **drafted))
    for name, count in (("drafts", 8), ("draft_tokens", 32), ("accepted_tokens", 12)):
        assert value(metrics, f"quire_spec_decode_num_{name}_total", engine="0", method="ngram") == count


def test_a_replacement_nobody_announced_is_noticed(metrics: Metrics) -> None:
    metrics.engine(0, EngineStats(step=5, total_prefix_tokens=100))
    metrics.engine(0, EngineStats(step=1, total_prefix_tokens=7))
    assert value(metrics, "quire_prefix_cache_queries_total", engine="0") == 107


def test_a_step_is_observed_once_and_an_idle_report_is_no_step(metrics: Metrics) -> None:
    step = EngineStats(step=1, step_seconds=0.5, step_tokens=40, step_sequences=3)
    metrics.engine(0, step)
    metrics.engine(0, step)
    assert value(metrics, "quire_iteration_tokens_count", engine="0") == 1
    assert value(metrics, "quire_iteration_tokens_sum", engine="0") == 40
    assert value(metrics, "quire_batch_size_bucket", engine="0", le="2.0") == 0
    assert value(metrics, "quire_batch_size_bucket", engine="0", le="4.0") == 1
    assert value(metrics, "quire_engine_busy_seconds_total", engine="0") == 0.5


def test_where_the_time_of_a_request_went(metrics: Metrics) -> None:
    metrics.request_finished(finished())
    sums = {"e2e_request_latency": 7, "request_queue_time": 1, "request_prefill_time": 2, "request_decode_time": 4,
            "request_inference_time": 6, "request_time_per_output_token": 1}  # fmt: skip
    for name, seconds in sums.items():
        assert value(metrics, f"quire_{name}_seconds_sum", engine="0") == seconds, name
        assert value(metrics, f"quire_{name}_seconds_count", engine="0") == 1, name
    assert value(metrics, "quire_request_success_total", engine="0", finished_reason="stop") == 1
    assert value(metrics, "quire_request_success_total", engine="0", finished_reason="error") == 0
    assert value(metrics, "quire_prompt_tokens_cached_total", engine="0") == 16


def test_several_answers_share_the_time_per_token(metrics: Metrics) -> None:
    metrics.request_finished(finished(n=5, output_tokens=25))
    assert value(metrics, "quire_request_time_per_output_token_seconds_sum", engine="0") == 1


def test_phases_never_reached_are_not_observed(metrics: Metrics) -> None:
    metrics.request_finished(finished(reason="queue_timeout", first_scheduled=None, first_token=None, max_tokens=None))
    assert value(metrics, "quire_request_queue_time_seconds_sum", engine="0") == 7
    for name in ("request_prefill_time_seconds", "request_decode_time_seconds", "request_params_max_tokens"):
        assert value(metrics, f"quire_{name}_count", engine="0") == 0


def test_tokens_and_the_time_between_them(metrics: Metrics) -> None:
    metrics.first_token(0, 0.3, prompt_tokens=30)
    metrics.tokens(0, 0.04, 4)
    metrics.tokens(0, None, 1)  # a second answer begins
    metrics.tokens(0, 1.0, 0)
    assert value(metrics, "quire_prompt_tokens_total", engine="0") == 30
    assert value(metrics, "quire_generation_tokens_total", engine="0") == 6
    assert value(metrics, "quire_inter_token_latency_seconds_count", engine="0") == 4
    assert value(metrics, "quire_inter_token_latency_seconds_sum", engine="0") == pytest.approx(0.04)
    assert value(metrics, "quire_inter_token_latency_seconds_bucket", engine="0", le="0.01") == 4
    assert value(metrics, "quire_time_to_first_token_seconds_sum", engine="0") == pytest.approx(0.3)


def test_clients_cannot_make_labels(metrics: Metrics) -> None:
    before = len(read(metrics))
    for number in range(500):
        metrics.http(f"/wp-admin/{number}", f"VERB{number}", 1000 + number, 0.1)
        metrics.request_finished(finished(tenant=f"tenant {number}", id=f"id-{number}"))
    after = read(metrics)
    assert value(metrics, "quire_http_requests_total", handler="other", method="other", status="other") == 500
    assert len(after) - before == len(catalog.HTTP_SECONDS.buckets) + 4  # one counter, one histogram
    assert "tenant" not in metrics.render()[0].decode()


def test_routes_may_come_later(metrics: Metrics) -> None:
    metrics.add_routes(["/v1/late"])
    metrics.http("/v1/late", "GET", 200, 0.1)
    metrics.http("/v1/files/{file_id}", "GET", 404, 0.1)
    assert value(metrics, "quire_http_requests_total", handler="/v1/late", method="GET", status="200") == 1
    assert value(metrics, "quire_http_requests_total", handler="/v1/files/{file_id}", method="GET", status="404") == 1


def test_reasons_are_bounded_too(metrics: Metrics) -> None:
    for number in range(200):
        metrics.refused(f"reason {number}")
        metrics.engine_lost(0, f"signal {number}")
    counts = [value for (name, _), value in read(metrics).items() if name == "quire_requests_refused_total"]
    losses = [value for (name, _), value in read(metrics).items() if name == "quire_engine_restarts_total"]
    assert (sum(counts), sum(losses)) == (200, 200)
    assert len(counts) == 33
    assert len(losses) == 17


def test_a_model_name_cannot_break_the_text() -> None:
    text, _ = Metrics('a"b\nquire_forged 1', 1).render()
    assert not [line for line in text.decode().splitlines() if line.startswith("quire_forged")]


def test_every_replica_is_there_from_the_start() -> None:
    metrics = Metrics("tiny", 3)
    assert [value(metrics, "quire_num_requests_running", engine=str(replica)) for replica in range(3)] == [0, 0, 0]


def test_the_snapshot_has_the_rates_of_the_last_seconds() -> None:
    snapshot = busy_metrics().snapshot()
    assert snapshot["ttft_seconds"]["p50"] == pytest.approx(0.2, rel=0.12)


def test_ranks_with_copies_of_experts() -> None:
    metrics = busy_metrics()
    assert value(metrics, "quire_expert_rank_imbalance", engine="0", copies="with") == 1.25
    assert value(metrics, "quire_expert_rank_imbalance", engine="0", copies="without") == 1.5
    assert value(metrics, "quire_expert_copies_moved_total", engine="0") == 12
    metrics.engine(0, EngineStats(step=2))
    assert "quire_expert_rank_imbalance" not in names(metrics)
