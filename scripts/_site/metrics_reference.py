"""The reference of metrics, from the catalog that exports them."""

from scripts._site.tables import cell, table


def metrics_reference() -> str:
    """A table for every group of the catalog."""
    from quire.observe import catalog

    groups = {
        "Engines": catalog.ENGINE_METRICS,
        "Requests": catalog.REQUEST_METRICS,
        "HTTP and the front": catalog.FRONT_METRICS + catalog.HUB_METRICS,
        "Router (`quire route` only)": catalog.ROUTER_METRICS,
    }
    return "\n\n".join(f"## {title}\n\n{_table(metrics)}" for title, metrics in groups.items())


def _table(metrics: tuple[object, ...]) -> str:
    from quire.observe.catalog import Metric

    rows = []
    for metric in metrics:
        assert isinstance(metric, Metric)
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append([f"`{metric.name}`", metric.kind, labels, cell(metric.help)])
    return table(["metric", "kind", "labels", "meaning"], rows)
