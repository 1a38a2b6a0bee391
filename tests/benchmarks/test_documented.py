"""Sections of the documentation that come from results."""

import json
from pathlib import Path

import pytest

from benchmarks.documented import with_figures

PAGE = "before 12\n\n<!-- figures {kind} results/one.json -->\nold 99\n<!-- end of figures -->\n\nafter\n"
CHAT = {"ttft": 0.1, "e2e": 1.0, "requests": 8.0, "output": 64.0, "cached": 0.9}
SAMPLES = {"firsts": 0.2, "whole": 1.0, "output": 64.0, "kv": 160.0}
SHARING = {
    "chat": {"about": "few users", "rounds": {"on": [CHAT], "off": [CHAT | {"ttft": 0.5}]}},
    "samples": {
        "about": "few answers",
        "workload": {"answers": 8},
        "rounds": {"together": [SAMPLES], "cached": [SAMPLES], "separate": [SAMPLES | {"kv": 1280.0}]},
    },
}
PEERS = {
    "date": "2026-01-01",
    "threads": 2,
    "limits": {"model_bytes": 5e10, "int8_operations": 1e12},
    "shares": {"prompt of 512": {"quire": 0.25}},
    "figures": {
        "prompt of 512": [{"contestant": "quire", "value": 200.0}, {"contestant": "llama.cpp", "value": 100.0}],
        "server, 1 stream: output, median TTFT": [{"contestant": "quire", "value": 10.0}],
    },
}


def written(tmp_path: Path, kind: str, record: object) -> str:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_text(json.dumps(record), encoding="utf-8")
    return with_figures(PAGE.format(kind=kind), tmp_path)


def test_figures_replace_what_stood_there(tmp_path: Path) -> None:
    page = written(tmp_path, "prefix_sharing", SHARING)
    assert "old 99" not in page
    assert page.startswith("before 12\n")
    assert page.endswith("after\n")
    assert "| time to first token, median of the users, ms | 100 (100–100) | 500 (500–500) | 5 (5–5) × |" in page
    assert "| KV cache taken at most, tokens | 160 (160–160) | 160 (160–160) | 1,280 (1,280–1,280) | 8 (8–8) ×" in page
    assert with_figures(page, tmp_path) == page


def test_a_row_for_each_case_of_a_comparison(tmp_path: Path) -> None:
    page = written(tmp_path, "peers", PEERS)
    assert "| prompt of 512, tok/s | 200 (200–200) | 100 (100–100) | 2.00 × | 25 % |" in page
    assert "| server, 1 stream: median TTFT, ms | 10 (10–10) | – | – |  |" in page


def test_a_picture_of_the_same_name_is_shown(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_text(json.dumps(SHARING), encoding="utf-8")
    (tmp_path / "results" / "one.png").write_bytes(b"")
    assert "(../results/one.png)" in with_figures(PAGE.format(kind="prefix_sharing"), tmp_path)


def test_results_that_are_not_there_yet_are_said_to_be(tmp_path: Path) -> None:
    assert "Not measured yet." in with_figures(PAGE.format(kind="peers"), tmp_path)


def test_an_unknown_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'peerz'.*prefix_sharing"):
        with_figures(PAGE.format(kind="peerz"), tmp_path)
