"""OpenAI's package for Node against the real server; `client.mjs` beside this file is what it runs."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.live import LiveServer

HERE = Path(__file__).parent
FOLDER = HERE.parents[2] / "build" / "node"
PACKAGE = "openai@6"


@pytest.fixture(scope="module")
def answers(live_server: LiveServer) -> Any:
    """One run of the script; its answers by name."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is missing (Debian: nodejs, npm), so the Node client was not tested")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "node_modules" / "openai").is_dir():
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), PACKAGE]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"npm could not install {PACKAGE}, so the Node client was not tested: {done.stderr[-300:]}")
    script = FOLDER / "client.mjs"  # Node looks for packages beside the script
    shutil.copyfile(HERE / "client.mjs", script)
    done = subprocess.run(
        ["node", str(script), live_server.url, live_server.model], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_chat_and_stream_say_the_same(answers: dict[str, Any]) -> None:
    assert "Paris" in answers["whole"]
    assert answers["streamed"] == answers["whole"]
    assert 0 < answers["completionTokens"] <= 12


def test_completions_and_models(answers: dict[str, Any], live_server: LiveServer) -> None:
    assert answers["choices"] == [0, 1]
    assert live_server.model in answers["models"]


def test_errors_have_their_classes(answers: dict[str, Any]) -> None:
    assert answers["wrongModel"]["name"] == "NotFoundError"
    assert answers["wrongModel"]["code"] == "model_not_found"
    assert answers["badField"]["name"] == "BadRequestError"
    assert answers["badField"]["param"] == "temperature"


def test_a_batch(answers: dict[str, Any]) -> None:
    assert answers["batch"] == answers["whole"]
