"""Metrics that have seen everything once, and their text read back as numbers."""

from prometheus_client.parser import text_string_to_metric_families

from quire.core.stats import EngineStats, FinishedRequest, LayerBalance, RankBalance
from quire.observe.metrics import Metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def finished(**changes: object) -> FinishedRequest:
    """A request that waited 1 s, took 2 s for its first token and 4 s for the four after it."""
    values: dict[str, object] = {
        "id": "cmpl-1",
        "endpoint": "/v1/completions",
        "tenant": "tenant-of-the-test",
        "model": "tiny",
        "prompt_tokens": 30,
        "cached_tokens": 16,
        "output_tokens": 5,
        "max_tokens": 5,
        "arrival": 100.0,
        "first_scheduled": 101.0,
        "first_token": 103.0,
        "finished": 107.0,
        **changes,
    }
    return FinishedRequest(**values)  # type: ignore[arg-type]


def busy_metrics() -> Metrics:
    """Every method called at least once."""
    metrics = Metrics("tiny", 1, ["/v1/completions"])
    stats = EngineStats(
        step=1,
        running=2,
        waiting=3,
        step_seconds=0.01,
        step_tokens=40,
        step_sequences=2,
        num_blocks=100,
        used_blocks=25,
        cached_blocks=50,
        block_size=16,
        host_blocks=10,
        used_host_blocks=4,
        draft_method="ngram",
        total_drafts=4,
        total_draft_tokens=16,
        total_accepted_tokens=6,
        expert_balance=[LayerBalance(1, 2.5, 0.25), LayerBalance(2, 1.0, 0.125)],
        rank_balance=RankBalance(1.25, 1.5, 12),
        total_expert_copies=12,
        total_expert_choices=800,
    )
    metrics.engine_lost(0, "died")
    metrics.engine(0, stats)
    metrics.first_token(0, 0.2, 30)
    metrics.tokens(0, 0.02, 1)
    metrics.request_finished(finished())
    metrics.http("/v1/completions", "POST", 200, 0.4)
    metrics.refused("overloaded")
    metrics.ignored("store")
    metrics.connections(7)
    metrics.slow_reader_paused()
    metrics.slow_reader_dropped()
    metrics.fronts(2, 1)
    return metrics


def read(metrics: Metrics) -> Samples:
    """Every sample of a front alone."""
    return read_text(metrics.render()[0])


def read_text(text: bytes) -> Samples:
    """Every sample by name and labels; `model_name` is checked and left out."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.startswith("quire_"):
                assert labels.pop("model_name") == "tiny"
            samples[sample.name, frozenset(labels.items())] = sample.value
    return samples


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return read(metrics)[name, frozenset(labels.items())]


def names(metrics: Metrics) -> set[str]:
    return {name for name, _ in read(metrics)}
