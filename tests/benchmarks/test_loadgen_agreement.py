"""Both generators' reports come to the same numbers where they saw the same moments."""

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from benchmarks.loadgen_agreement.guidellm_run import read_guidellm, version
from benchmarks.loadgen_agreement.quantities import Answer, MissingAnswers, agreed
from benchmarks.loadgen_agreement.quire_run import read_quire
from benchmarks.loadgen_agreement.table import tables
from benchmarks.loadgen_agreement.workload import Workload

WORKLOAD = Workload(requests=2, at_once=2, prompt=8, answer=5)
MOMENTS = [(0.0, 0.5, 2.5, 2.6), (0.1, 0.4, 1.6, 1.7)]
"""Sent, first token, last token, end."""


def guidellm_report() -> dict[str, Any]:
    requests = [
        {
            "output_tokens": 5,
            "info": {
                "timings": {
                    "request_start": 100 + sent,
                    "first_token_iteration": 100 + first,
                    "last_token_iteration": 100 + last,
                    "request_end": 100 + end,
                }
            },
        }
        for sent, first, last, end in MOMENTS
    ]
    return {"benchmarks": [{"requests": {"successful": requests, "errored": []}}]}


def quire_report() -> dict[str, Any]:
    samples = {
        "ttft": [first - sent for sent, first, _, _ in MOMENTS],
        "e2e": [last - sent for sent, _, last, _ in MOMENTS],
    }
    run = {"completed": 2, "output_tokens": 10, "seconds": 2.6, "errors": {}}
    measures = [{"name": name, "runs": [values]} for name, values in samples.items()]
    return {"points": [{"measures": measures, "runs": [run]}]}


def test_the_same_moments_are_the_same_figures() -> None:
    ours, theirs = read_quire(quire_report(), WORKLOAD), read_guidellm(guidellm_report(), WORKLOAD)
    assert astuple(ours) == pytest.approx(astuple(theirs))
    assert ours.first_token == pytest.approx(0.4)
    assert ours.per_token == pytest.approx((0.5 + 0.3) / 2)
    assert ours.per_token_with_first == pytest.approx((0.5 + 0.3) / 2)
    assert ours.output == pytest.approx(10 / 2.6)


def test_the_two_meanings_of_time_per_token_differ() -> None:
    found = agreed([Answer(first=1.0, last=2.0, tokens=5)], seconds=2.0)
    assert (found.per_token, found.per_token_with_first) == (0.25, 0.4)


def test_answers_that_are_missing_are_an_error() -> None:
    report = guidellm_report()
    report["benchmarks"][0]["requests"]["successful"].pop()
    with pytest.raises(MissingAnswers, match="1 whole answers of 2"):
        read_guidellm(report, WORKLOAD)
    report = quire_report()
    report["points"][0]["runs"][0] |= {"completed": 1, "errors": {"timeout": 1}}
    with pytest.raises(MissingAnswers, match=r"1 whole answers of 2.*timeout"):
        read_quire(report, WORKLOAD)


def test_the_table_tells_the_difference() -> None:
    one = {"first_token": 0.1, "per_token": 0.01, "mean_gap": 0.01, "per_token_with_first": 0.02, "last_token": 1.0}
    one |= {"requests": 2.0, "output": 100.0}
    rounds = {
        "quire": [one | {"first_token": 0.11, "wire": one}],
        "guidellm": [one | {"first_token": 0.21, "wire": one | {"first_token": 0.2}}],
    }
    lines = tables({"about": "few", "guidellm": "1.0", "rounds": rounds})
    figures = "110 (110–110) | 210 (210–210)"
    from_wire = "+10.0% (+10.0% to +10.0%) | +5.0% (+5.0% to +5.0%)"
    assert f"| first token (TTFT), ms | {figures} | {from_wire} | +4.8% (+4.8% to +4.8%) |" in lines


def test_a_python_without_guidellm_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="pip install guidellm"):
        version(tmp_path / "python")
    pretender = tmp_path / "pretender"
    pretender.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
    pretender.chmod(0o755)
    with pytest.raises(SystemExit, match="has no guidellm"):
        version(pretender)
