"""Measuring a server takes no torch: the load generator starts at once and leaves memory to who is measured."""

from tests.architecture.test_light_imports import IMPORT_ALL, heavy_modules_after

TORCH_FREE = (
    *("arrivals", "comparison", "load_search", "measure", "objectives", "page", "pictures", "record", "report"),
    *("serve_bench", "startup", "summary_rows", "sweep", "vocabulary", "datasets.choose", "kernels.registry"),
)


def test_loading_a_server_needs_neither_torch_nor_numpy() -> None:
    assert heavy_modules_after(IMPORT_ALL, *(f"quire.bench.{name}" for name in TORCH_FREE)) == []
