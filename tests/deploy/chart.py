"""The Helm chart rendered by Helm itself: its Go library, which the package helm-python-sdk carries."""

from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "quire"
EXAMPLES = sorted((CHART / "values").glob("*.yaml"))
NAMESPACE = "llm"

Manifest = dict[str, Any]
Values = dict[str, Any]


def rendered(values: Values, release: str = "quire") -> list[Manifest]:
    """What `helm install RELEASE deploy/helm/quire` would create."""
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(values))
        texts = chart.render(values, name=release, namespace=NAMESPACE)
    manifests = [text for name, text in texts.items() if not name.endswith(".txt")]
    return [found for text in manifests for found in yaml.safe_load_all(text) if found is not None]


def example(path: Path) -> list[Manifest]:
    return rendered(yaml.safe_load(path.read_text(encoding="utf-8")))


def named(manifests: list[Manifest], kind: str, name: str = "quire") -> Manifest:
    """The one of this kind and name."""
    (found,) = (each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def workloads(manifests: list[Manifest]) -> list[Manifest]:
    """What has pods."""
    return [each for each in manifests if each["kind"] in ("Deployment", "StatefulSet")]


def container(workload: Manifest) -> Manifest:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    found: Manifest = only
    return found
