"""What the chart asks of operators (Prometheus', KEDA's) fits the schemas of their own kinds, which npm has."""

import copy
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.chart import EXAMPLES, Manifest, example

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent / "node"
OF_OPERATORS = ("ServiceMonitor", "PrometheusRule", "ScaledObject")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Node finds the schemas."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is missing (Debian: nodejs, npm), so the operators' schemas were not asked")
    found = tmp_path_factory.mktemp("node")
    for file in HERE.iterdir():
        shutil.copyfile(file, found / file.name)
    install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(found)]
    done = subprocess.run(install, capture_output=True, text=True, check=False, cwd=found)
    if done.returncode:
        pytest.skip(f"npm could not install the operators' schemas: {done.stderr[-300:]}")
    return found


def complaints(folder: Path, manifests: list[Manifest]) -> list[str]:
    done = subprocess.run(
        ["node", str(folder / "validate.mjs")], input=json.dumps(manifests), capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_operators_understand_what_the_chart_asks(folder: Path) -> None:
    manifests = [each for path in EXAMPLES for each in example(path) if each["kind"] in OF_OPERATORS]
    assert {each["kind"] for each in manifests} == set(OF_OPERATORS)
    assert complaints(folder, manifests) == []


def test_what_they_would_not_understand_is_noticed(folder: Path) -> None:
    manifests = [each for path in EXAMPLES for each in example(path) if each["kind"] == "ScaledObject"]
    wrong = copy.deepcopy(manifests[0])
    wrong["spec"]["minReplicaCount"] = "two"
    assert complaints(folder, [wrong]) == ["ScaledObject: data/spec/minReplicaCount must be integer"]
