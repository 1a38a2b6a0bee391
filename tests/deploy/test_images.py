"""Dockerfiles and compose files: what linters say of them, and that they agree with the chart and with each other."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from quire.config.server import ServerConfig
from tests.deploy.chart import container, named, rendered
from tests.deploy.replay import ROOT, steps

FOLDER = ROOT / "deploy" / "docker"
DOCKERFILES = sorted(FOLDER.glob("*.Dockerfile"))
COMPOSE = FOLDER / "compose.yml"


@pytest.fixture(params=DOCKERFILES, ids=lambda path: path.stem)
def dockerfile(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return found


def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    command = [str(hadolint), "--config", str(FOLDER / "hadolint.yaml"), "--format", "json", str(dockerfile)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert json.loads(done.stdout) == []


def test_bases_can_be_fixed_by_digest(dockerfile: Path) -> None:
    bases = [step.rest for step in steps(dockerfile) if step.word == "FROM"]
    assert bases == ["${BASE} AS build", "${BASE}"]
    assert steps(dockerfile)[0].word == "ARG"


def test_torch_is_in_the_range_of_the_package(dockerfile: Path) -> None:
    """Otherwise pip would replace it by another, from another index."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert f'TORCH="{next(each for each in wanted if each.startswith("torch"))}"' in [
        step.rest for step in steps(dockerfile) if step.word == "ARG"
    ]


def test_the_image_runs_as_the_user_that_the_chart_expects(dockerfile: Path) -> None:
    pod = named(rendered({}), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    (user,) = (step.rest for step in steps(dockerfile) if step.word == "USER")
    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}"


def test_images_and_chart_have_the_same_folders(dockerfile: Path) -> None:
    """What the image says of folders holds for Docker, what the chart says for Kubernetes."""
    said = dict(pair.split("=", 1) for step in steps(dockerfile) if step.word == "ENV" for pair in step.rest.split())
    chart = {each["name"]: each["value"] for each in container(named(rendered({}), "Deployment"))["env"]}
    shared = said.keys() & chart.keys()
    assert shared >= {"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME"}
    assert {name: said[name] for name in shared} == {name: chart[name] for name in shared}
    (volumes,) = (json.loads(step.rest) for step in steps(dockerfile) if step.word == "VOLUME")
    assert all(any(said[name].startswith(place) for place in [*volumes, "/tmp"]) for name in shared)
    assert said["QUIRE_PORT"] == str(ServerConfig().port)


def test_only_what_images_need_is_sent_to_the_builder(dockerfile: Path) -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = [step.rest.split()[:-1] for step in steps(dockerfile) if step.word == "COPY" and "--from" not in step.rest]
    assert {name for names in copied for name in names} == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_services_have_no_privilege_and_stay_on_this_machine(services: dict[str, Any]) -> None:
    assert set(services) == {"quire", "prometheus", "grafana"}
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_server_has_time_to_drain(services: dict[str, Any]) -> None:
    command = services["quire"]["command"]
    drain = float(command[command.index("--drain-timeout") + 1])
    grace = float(services["quire"]["stop_grace_period"].removesuffix("s"))
    assert grace > drain + ServerConfig().slow_reader_timeout


def test_files_of_compose_point_at_each_other(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service["volumes"] if mount[0] == "."]
    assert len(mounts) == 4
    assert all((FOLDER / mount.partition(":")[0]).resolve().exists() for mount in mounts)
    build = services["quire"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() in DOCKERFILES
    (target,) = yaml.safe_load((FOLDER / "targets.yml").read_text(encoding="utf-8"))[0]["targets"]
    assert target == f"{services['quire']['hostname']}:{ServerConfig().port}"
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    provider = yaml.safe_load((provisioning / "dashboards/quire.yml").read_text(encoding="utf-8"))
    folder = provider["providers"][0]["options"]["path"]
    assert any(mount.split(":")[1].startswith(folder) for mount in mounts)
    source = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text(encoding="utf-8"))
    (variable,) = re.findall(r"^\$(\w+)$", source["datasources"][0]["url"])
    assert services["grafana"]["environment"][variable] == "http://prometheus:9090"


@pytest.mark.slow
def test_dclint_finds_nothing(node_folder: Path) -> None:
    files = [str(FOLDER / name) for name in ("compose.yml", "compose.cuda.yml")]
    command = ["npx", "--prefix", str(node_folder), "dclint", "-c", str(node_folder / "dclintrc.yaml"), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout
