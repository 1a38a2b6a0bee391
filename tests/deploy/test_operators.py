"""What the chart asks of operators (Prometheus', KEDA's) fits the schemas of their own kinds, which npm has."""

import copy
import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.chart import EXAMPLES, Manifest, example

pytestmark = pytest.mark.slow
OF_OPERATORS = ("ServiceMonitor", "PrometheusRule", "ScaledObject")


def complaints(node_folder: Path, manifests: list[Manifest]) -> list[str]:
    done = subprocess.run(
        ["node", str(node_folder / "validate.mjs")],
        input=json.dumps(manifests),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def test_operators_understand_what_the_chart_asks(node_folder: Path) -> None:
    manifests = [each for path in EXAMPLES for each in example(path) if each["kind"] in OF_OPERATORS]
    assert {each["kind"] for each in manifests} == set(OF_OPERATORS)
    assert complaints(node_folder, manifests) == []


def test_what_they_would_not_understand_is_noticed(node_folder: Path) -> None:
    manifests = [each for path in EXAMPLES for each in example(path) if each["kind"] == "ScaledObject"]
    wrong = copy.deepcopy(manifests[0])
    wrong["spec"]["minReplicaCount"] = "two"
    assert complaints(node_folder, [wrong]) == ["ScaledObject: data/spec/minReplicaCount must be integer"]
