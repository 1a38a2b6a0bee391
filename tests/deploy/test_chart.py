"""The chart's manifests fit the schemas of Kubernetes, refuse wrong values, and say what quire needs of a cluster."""

import re
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from quire.observe import catalog
from tests.deploy.chart import (
    CHART,
    EXAMPLES,
    ROOT,
    Manifest,
    Values,
    container,
    example,
    named,
    rendered,
    workloads,
)

OF_OPERATORS = ("ServiceMonitor", "PrometheusRule", "ScaledObject")
"""Kinds of other vendors, whose schemas `test_operators.py` has."""
VERSIONS = ("1.27", "1.37")
KEYS: Values = {"secrets": {"apiKey": "k" * 20}}


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return example(request.param)


def test_there_are_examples_of_four_kinds() -> None:
    assert [path.stem for path in EXAMPLES] == ["cpu", "gpu", "prefill-decode", "router-fleet"]


@pytest.mark.parametrize("version", VERSIONS)
def test_examples_fit_the_schemas_of_kubernetes(manifests: list[Manifest], version: str) -> None:
    checked = [each for each in manifests if each["kind"] not in OF_OPERATORS]
    assert len(checked) >= 5
    for manifest in checked:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_that_does_not_fit_is_noticed() -> None:
    manifest = named(rendered({}), "Deployment")
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = 5
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_helm_finds_nothing_to_complain_about() -> None:
    found = helm_python.lint(CHART, strict=True)
    assert found["total_charts_linted"] == 1
    assert not found["errors"]
    advice = 1  # such as to have an icon
    assert not [each for each in found["messages"] if each["severity"] > advice], found


def test_no_pod_has_a_privilege(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(workload)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        is_router = workload["metadata"]["name"].endswith("router")
        assert pod.get("automountServiceAccountToken", True) == is_router


def test_what_quire_writes_lies_on_volumes(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests):
        pod, only = workload["spec"]["template"]["spec"], container(workload)
        claims = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())]
        volumes = {each["name"] for each in pod["volumes"]} | set(claims)
        assert {each["name"] for each in only["volumeMounts"]} == volumes
        mounts = [each["mountPath"] for each in only["volumeMounts"]]
        for variable in only["env"]:
            if str(variable.get("value", "")).startswith("/"):
                assert any(variable["value"].startswith(mount) for mount in [*mounts, "/data"]), variable


def test_a_service_called_quire_puts_no_variables_into_pods(manifests: list[Manifest]) -> None:
    assert named(manifests, "Service")
    for workload in workloads(manifests):
        assert workload["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_pods_have_time_to_drain(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests):
        only = container(workload)
        drains = [word for word in only["args"] if word.startswith("--drain-timeout=")]
        if only["name"] == "engine":
            assert not drains  # its servers keep the record of every request
            continue
        before = int(only["lifecycle"]["preStop"]["exec"]["command"][1])
        grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace > before + int(drains[0].partition("=")[2]) + 60


@pytest.mark.parametrize("settings", [{"slow_reader_timeout": 89.5}, {"server": {"slow_reader_timeout": 90}}])
def test_a_longer_drain_makes_a_longer_grace_period(settings: Values) -> None:
    values: Values = {"server": {"drainTimeout": 1000, "preStopSeconds": 20}, "settings": settings}
    pod = named(rendered(values), "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 20 + 1000 + 90 + 15


def test_probes_ask_routes_that_want_no_key(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests):
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container(workload)[kind]
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] in ("/health", "/ready")
            else:
                assert probe["tcpSocket"]


def test_services_choose_the_pods_they_are_for(manifests: list[Manifest]) -> None:
    pods = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in workloads(manifests)}
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        found = [each for each in manifests if each["kind"] == kind]
        assert {each["metadata"]["name"] for each in found} == set(pods)
        for each in found:
            spec = each["spec"]
            wanted = spec["selector"] if kind == "Service" else spec.get("selector", spec.get("podSelector"))
            wanted = wanted.get("matchLabels", wanted)
            chosen = [name for name, labels in pods.items() if wanted.items() <= labels.items()]
            assert chosen == [each["metadata"]["name"]]


def test_secrets_that_pods_name_have_these_entries() -> None:
    values: Values = {
        "router": {"enabled": True},
        "engines": {"enabled": True},
        "secrets": {
            "apiKey": "a" * 20,
            "memberKey": "m" * 20,
            "engineSecret": "e" * 32,
            "hubToken": "hf_x",
            "namedKeys": {"alice": {"sha256": "0" * 64}},
        },
        "monitoring": {"serviceMonitor": True},
    }
    manifests = rendered(values)
    secret = named(manifests, "Secret")
    assert yaml.safe_load(secret["stringData"]["keys.yaml"]) == values["secrets"]["namedKeys"]
    asked = re.findall(r"'(?:key)': '([^']+)'", str([container(each) for each in workloads(manifests)]))
    asked += [item["key"] for each in workloads(manifests) for volume in each["spec"]["template"]["spec"]["volumes"]
              for item in volume.get("secret", {}).get("items", ())]  # fmt: skip
    assert set(asked) == set(secret["stringData"])
    keys = {each["metadata"]["name"]: each["spec"]["endpoints"][0]["authorization"]["credentials"]["key"]
            for each in manifests if each["kind"] == "ServiceMonitor"}  # fmt: skip
    assert keys == {"quire": "member-key", "quire-router": "api-key"}


def test_servers_find_every_engine_by_name() -> None:
    manifests = example(CHART / "values" / "prefill-decode.yaml")
    words = container(named(manifests, "Deployment"))["args"]
    (engines,) = (word.removeprefix("--engines=") for word in words if word.startswith("--engines="))
    expected = [f"tcp://quire-prefill-{number}.quire-prefill:7700" for number in range(2)]
    expected += [f"tcp://quire-decode-{number}.quire-decode:7700" for number in range(4)]
    assert engines.split(",") == expected
    for role in ("prefill", "decode"):
        engine = named(manifests, "StatefulSet", f"quire-{role}")
        assert container(engine)["resources"]["limits"]["nvidia.com/gpu"] == 1
        service = named(manifests, "Service", engine["spec"]["serviceName"])
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True


def test_autoscalers_ask_for_metrics_that_exist() -> None:
    asked = []
    for by, kind in (("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")):
        manifests = rendered({"autoscaling": {"by": by, "minReplicas": 2}})
        asked.append(set(re.findall(r"quire_\w+", str(named(manifests, kind)["spec"]))))
        assert "replicas" not in named(manifests, "Deployment")["spec"]
    assert asked[0] == asked[1] == {catalog.WAITING.name, catalog.KV_USAGE.name}


def test_alerts_are_those_of_deploy_prometheus() -> None:
    rules = named(rendered({"monitoring": {"rules": True}}), "PrometheusRule")["spec"]
    assert rules == yaml.safe_load((ROOT / "deploy/prometheus/quire.rules.yml").read_text(encoding="utf-8"))


def test_a_server_without_keys_is_told_its_names() -> None:
    words = container(named(rendered({}, release="other"), "Deployment", "other-quire"))["args"]
    names = "other-quire,other-quire.llm,other-quire.llm.svc,other-quire.llm.svc.cluster.local"
    assert f"--allowed-hosts={names}" in words
    assert not [word for word in container(named(rendered(KEYS), "Deployment"))["args"] if "allowed-hosts" in word]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"serverr": {}}, "serverr"),
        ({"server": {"replicas": 0}}, "replicas"),
        ({"server": {"kind": "DaemonSet"}}, "kind"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"autoscaling": {"kvUsage": 90}}, "kvUsage"),
        ({"server": {"drainTimeout": "5m"}}, "drainTimeout"),
        ({"models": {"size": "fifty"}}, "size"),
        ({"secrets": {"engineSecret": "short"}}, "engineSecret"),
        ({"store": {"size": "1Gi"}}, "server.kind to StatefulSet"),
        ({"engines": {"enabled": True}}, "secrets.engineSecret"),
        ({"engines": {"enabled": True}, "secrets": {"engineSecret": "e" * 16}, "server": {"gpus": 1}}, "server.gpus"),
        (
            {"engines": {"enabled": True}, "secrets": {"engineSecret": "e" * 16}, "autoscaling": {"by": "hpa"}},
            "no engines of their own",
        ),
        ({"router": {"enabled": True}} | KEYS, "secrets.memberKey"),
        ({"autoscaling": {"by": "hpa", "minReplicas": 9}}, "maxReplicas, 4"),
        ({"secrets": {"entries": ["api-key"]}}, "secrets.existingSecret"),
        ({"secrets": {"existingSecret": "mine", "apiKey": "k"}}, "existingSecret is used as it is"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values_are_refused_by_name(values: Values, told: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(told)):
        rendered(values)


def test_every_value_has_a_place_in_the_schema() -> None:
    """A value that the schema forgets could not be set; one that it invents would do nothing."""
    schema = _schema(CHART)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known = set(schema["properties"]) - {"global"}  # Helm's own
    assert known == set(defaults)
    for name, part in defaults.items():
        if isinstance(part, dict) and "properties" in schema["properties"][name]:
            assert set(schema["properties"][name]["properties"]) == set(part), name


def _schema(chart: Path) -> dict[str, Any]:
    with helm_python.Chart.load(chart) as loaded:
        found = loaded.schema
    assert found is not None
    return found
