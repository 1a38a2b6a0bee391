"""The images' steps, done in a fresh Debian, and what they make, run as a container would run it: not as root, on a
read-only root. Takes minutes and gigabytes of downloads; the CUDA image goes as far as one can without a GPU."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from quire.models.loading.default_model import fetch_default_model
from tests.deploy.replay import ROOT, Image, debian, replay
from tests.router.instances import free_port

pytestmark = pytest.mark.slow
FOLDER = ROOT / "deploy" / "docker"
PYPI = "https://pypi.org/simple"
USER = 10001


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("replaying an image needs root and debootstrap (Debian: apt install debootstrap)")
    return debian(FOLDER / "cpu.Dockerfile", tmp_path_factory.mktemp("base") / "debian")


def torch_for_cpus() -> dict[str, str]:
    """Where torch's own index cannot be reached: the last version of which PyPI has a build without CUDA for ARM."""
    try:
        httpx.head("https://download.pytorch.org/whl/cpu/", timeout=10).raise_for_status()
    except httpx.HTTPError:
        return {"TORCH_INDEX": PYPI, "TORCH": "torch==2.10.*"}
    return {}


@contextmanager
def served(image: Image, folder: Path, *options: str) -> Iterator[str]:
    """A container that serves the default model from its volume."""
    volumes = {folder / "models": "/models", folder / "data": "/data"}
    model = fetch_default_model()
    for place in volumes:
        place.mkdir()
    kept = folder / "models" / "quire" / "models" / model.name
    kept.parent.mkdir(parents=True)
    shutil.copyfile(model, kept)
    for path in (*volumes, *(folder / "models").rglob("*")):
        os.chown(path, USER, USER)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    image.environment["QUIRE_PORT"] = str(port)
    command = image.invocation([*image.entrypoint, *image.command, *options], volumes)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 180
        while True:
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")[-4000:]
            assert time.monotonic() < end, (folder / "log").read_text(encoding="utf-8")[-4000:]
            try:
                if httpx.get(f"{url}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def check(image: Image, folder: Path) -> None:
    """It answers, its health check agrees, and its root stays as it was."""
    with served(image, folder) as url:
        body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120).raise_for_status().json()
        assert answer["choices"][0]["text"]
        subprocess.run(image.invocation(image.health), check=True, timeout=60)
    assert subprocess.run(image.invocation(image.health), check=False, capture_output=True, timeout=60).returncode != 0
    written = image.invocation(["touch", "/opt/quire/written"])
    assert subprocess.run(written, check=False, capture_output=True, timeout=60).returncode != 0


def size(image: Image) -> int:
    """MiB of the whole image."""
    done = subprocess.run(["du", "-sm", str(image.root)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def test_the_cpu_image_serves(base: Path, tmp_path: Path) -> None:
    image = replay(FOLDER / "cpu.Dockerfile", base, tmp_path, torch_for_cpus())
    check(image, tmp_path)
    print(f"the CPU image has {size(image)} MiB")
    assert size(image) < 2048


def test_the_cuda_image_is_complete_but_for_a_gpu(base: Path, tmp_path: Path) -> None:
    image = replay(FOLDER / "cuda.Dockerfile", base, tmp_path, {})
    check(image, tmp_path)  # without a GPU it serves on the CPU
    compiles = "echo '#include <Python.h>' | gcc -c -x c - -o /tmp/launcher.o $(python3-config --includes)"
    subprocess.run(image.invocation(["sh", "-c", compiles]), check=True, timeout=60)
    print(f"the CUDA image has {size(image)} MiB")
