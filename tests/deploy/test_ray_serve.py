"""quire's application of Ray Serve without a cluster: settings, scaling, its files, and a replica's own parts."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import kubernetes_validate
import pytest
import yaml
from quire_ray.addresses import ReplicaSource
from quire_ray.app import build
from quire_ray.hosted_front import HostedFront
from quire_ray.hosted_router import HostedRouter
from quire_ray.scaling import autoscaling, by_requests, check_policy
from quire_ray.settings import read_args
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema

from quire.config.engine import EngineConfig
from quire.config.observe import ObserveConfig
from quire.config.router import RouterConfig
from quire.core.errors import CheckpointError, ConfigError
from tests.deploy.replay import ROOT

pytestmark = pytest.mark.anyio
FOLDER = ROOT / "deploy" / "ray_serve"
KUBERNETES = "1.27"
TINY = {"dtype": "float32", "num_gpu_blocks_override": 64}

# -- settings ----------------------------------------------------------------------------------------------------


def test_settings_go_to_servers_and_gateways() -> None:
    read = read_args(
        {"model": "m", "max-num-seqs": 8, "api_key": "k" * 20, "router": {"health_timeout": 3.0}, "outage_timeout": 5},
        {"QUIRE_LOG_LEVEL": "error", "QUIRE_PORT": "9000", "QUIRE_MAX_NUM_SEQS": "4", "HOME": "/"},
    )
    assert read.server == {"model": "m", "max_num_seqs": 8, "outage_timeout": 5, "log_level": "error"}
    assert len(read.router.pop("member_key")) == 64
    assert read.router == {"api_key": "k" * 20, "health_timeout": 3.0, "outage_timeout": 5}
    assert (read.gateways, read.scaling, read.has_roles) == (1, {"server": {}}, False)


def test_text_is_read_as_the_setting_is() -> None:
    """`serve run quire_ray.app:build key=value` gives nothing but text."""
    given = {"model": "1", "max_num_seqs": "8", "enable_lora": "true", "gateways": "2", "drain_timeout": "1.5"}
    read = read_args(given | {"scaling": '{"server": {"max_replicas": 3}}'}, {})
    assert read.server == {"model": "1", "max_num_seqs": 8, "enable_lora": True, "drain_timeout": 1.5}
    assert (read.gateways, read.scaling) == (2, {"server": {"max_replicas": 3}})


def test_a_key_of_the_environment_is_what_gateways_show() -> None:
    assert read_args({}, {"QUIRE_MEMBER_KEY": "s" * 32}).router["member_key"] == "s" * 32
    assert read_args({}, {}).router["member_key"] != read_args({}, {}).router["member_key"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"max_num_seq": 8}, r"args has an unknown key 'max_num_seq'\. Did you mean .*max_num_seqs"),
        ({"max_num_seqs": "many"}, r"args: max_num_seqs is 'many' \(str\), but it must be a whole number\."),
        ({"gpu_memory_utilization": 2}, r"--gpu-memory-utilization is 2, .*more than 0 and at most 1"),
        ({"port": 8000}, r"args: port is not for an application of Serve; http_options\.port"),
        ({"engines": "tcp://10.0.0.5:7700"}, r"engines is not for an application.*scaling with prefill and decode"),
        ({"router": {"members": "http://a"}}, r"members is not for an application .* application's own servers"),
        ({"gateways": 0}, r"gateways is 0, but it must be a whole number from 1"),
        ({"scaling": {"sever": {}}}, r"scaling has an unknown deployment 'sever'\. Did you mean .*server"),
        ({"scaling": "x"}, r"scaling is 'x', but as text it must be JSON"),
        ({"scaling": {"server": 3}}, r"scaling is .* must have fields of Serve's autoscaling for each of server"),
        ({"scaling": {"prefill": {}}}, r"scaling has prefill, but not decode"),
        (
            {"scaling": {"prefill": {}, "decode": {}}, "replicas": 2},
            r"replicas says how many engines a server has, .* leave replicas out",
        ),
    ],
)
def test_wrong_settings_are_told_in_one_line(args: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        read_args(args, {})
    assert "\n" not in str(caught.value)


def test_a_variable_that_is_no_setting_is_told() -> None:
    with pytest.raises(ConfigError, match="the environment variable QUIRE_MODLE is no setting"):
        read_args({}, {"QUIRE_MODLE": "x"})


# -- scaling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counted", "wanted"), [({}, 0), ({"a": 1.0}, 1), ({"a": 16.0, "b": 17.0}, 3)])
def test_replicas_follow_requests(counted: dict[str, float], wanted: int) -> None:
    config = autoscaling("server", {"max_replicas": 4})
    context = SimpleNamespace(aggregated_metrics={"requests": counted}, config=config)
    assert by_requests(context) == (wanted, {})
    assert config.policy.get_policy()(context) == (wanted, {})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"min_replica": 1}, r"scaling of server has an unknown field 'min_replica'\. Did you mean .*min_replicas"),
        ({"min_replicas": 0}, r"min_replicas 0, but it must be 1 or more"),
        ({"max_replicas": "x"}, r"scaling of server: max_replicas is wrong: "),
        ({"min_replicas": 5, "max_replicas": 2}, r"scaling of server: "),
    ],
)
def test_wrong_scaling_is_told_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        autoscaling("server", given)
    assert "\n" not in str(caught.value)


def test_another_policy_is_told() -> None:
    check_policy("Server", None)  # a fixed number
    check_policy("Server", autoscaling("server", {}))
    with pytest.raises(ConfigError, match=r"autoscaling_config of Server .* in args as scaling: \{server: \.\.\.\}"):
        check_policy("Server", AutoscalingConfig(max_replicas=3))


# -- the application and its files ----------------------------------------------------------------------------------


def deployments(application: Any) -> dict[str, Any]:
    """By name, with those it is bound to."""
    own = application._bound_deployment
    found = {own.name: own}
    for bound in own.init_args:
        if hasattr(bound, "_bound_deployment"):
            found |= deployments(bound)
    return found


def test_roles_are_deployments_of_their_own() -> None:
    assert set(deployments(build({}))) == {"Gateway", "Server"}
    built = deployments(build({"scaling": {"prefill": {"max_replicas": 2}, "decode": {}}, "drain_timeout": 5}))
    assert set(built) == {"Gateway", "Server", "Prefill", "Decode"}
    assert built["Prefill"].init_args[1] == "prefill"
    assert built["Prefill"]._deployment_config.autoscaling_config.max_replicas == 2
    assert built["Server"]._deployment_config.graceful_shutdown_timeout_s == 5 + 60 + 15


def serve_configs() -> list[Any]:
    service = yaml.safe_load((FOLDER / "rayservice.yaml").read_text(encoding="utf-8"))
    return [
        yaml.safe_load((FOLDER / "serve.yaml").read_text(encoding="utf-8")),
        yaml.safe_load(service["spec"]["serveConfigV2"]),
    ]


@pytest.mark.parametrize("config", serve_configs(), ids=["serve.yaml", "rayservice.yaml"])
def test_configs_are_what_serve_takes_and_the_application_understands(config: dict[str, Any]) -> None:
    [application] = ServeDeploySchema(**config).applications
    assert application.import_path == "quire_ray.app:build"
    built = deployments(build(application.args))
    assert {each.name for each in application.deployments} <= set(built)
    for each in application.deployments:
        assert "autoscaling_config" not in each.model_fields_set, "it would replace the policy"


def test_the_service_is_what_kubernetes_takes() -> None:
    service = yaml.safe_load((FOLDER / "rayservice.yaml").read_text(encoding="utf-8"))
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": group["template"]["spec"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    [application] = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    grace = cluster["workerGroupSpecs"][0]["template"]["spec"]["terminationGracePeriodSeconds"]
    built = deployments(build(application["args"]))
    assert grace >= built["Server"]._deployment_config.graceful_shutdown_timeout_s
    worker = cluster["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert all(
        float(each["ray_actor_options"]["num_cpus"]) <= int(worker["cpu"]) for each in application["deployments"]
    )


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    config = ROOT / "deploy" / "docker" / "hadolint.yaml"
    command = [str(hadolint), "--config", str(config), "--format", "json", str(FOLDER / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert json.loads(done.stdout) == []


# -- replicas ----------------------------------------------------------------------------------------------------


class Replicas:
    """A handle of Serve's as far as a gateway uses one."""

    def __init__(self, *fronts: Any) -> None:
        self._fronts = fronts

    def broadcast(self, method: str) -> "Replicas":
        assert method == "address"
        return self

    async def results_async(self, *, timeout_s: float, return_exceptions: bool) -> list[Any]:
        return [each.url for each in self._fronts] + [RuntimeError("one that dies")] * return_exceptions


async def test_a_gateway_streams_from_a_replica_that_drains(tiny_chat: Path, tmp_path: Path) -> None:
    key = "k" * 32
    settings = {"model": str(tiny_chat), "api_key": key, "port": 0, "store": str(tmp_path), **TINY}
    front = HostedFront(EngineConfig.from_flat(**settings))
    await front.start()
    assert front.problem() is None
    source: Any = ReplicaSource(cast(Any, Replicas(front)))
    assert [each.url for each in await source.look()] == [front.url]
    router = HostedRouter(RouterConfig(member_key=key, health_interval=0.1), ObserveConfig(log_level="error"), [source])
    await router.start()
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(at_llm(router)), base_url="http://localhost"
        ) as client:
            while (await client.get("/llm/ready")).status_code != 200:
                await asyncio.sleep(0.05)
            body = {"prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}
            asking = asyncio.create_task(client.post("/llm/v1/completions", json=body))
            while not front.num_requests:
                await asyncio.sleep(0.01)
            await front.drain()
            answer = await asking
            assert answer.status_code == 200
            assert answer.text.count('"text"') > 1
            assert answer.text.endswith("data: [DONE]\n\n")
            assert front.problem() == "the server has ended"
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(front.url)
    finally:
        await router.close()


def at_llm(router: HostedRouter) -> Any:
    """As Serve calls an application at /llm."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await router.app({**scope, "root_path": "/llm"}, receive, send)

    return app


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    front = HostedFront(EngineConfig.from_flat(model=str(tmp_path / "nothing"), port=0, store=str(tmp_path)))
    with pytest.raises(CheckpointError, match="there is no file or folder"):
        await front.start()
