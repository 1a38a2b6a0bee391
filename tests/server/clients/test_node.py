"""OpenAI's package and the Vercel AI SDK, both for Node, against the real server; `node/` beside this file has the
scripts that they run, and the versions."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.clients.weather import NAME, GetWeather
from tests.server.live import LiveServer

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent / "node"
FOLDER = HERE.parents[3] / "build" / "node"
LONGEST_RUN = 300
"""Seconds; only a script that hangs ever takes so long."""


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the packages are installed, beside copies of the scripts: Node looks for them there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is missing (Debian: nodejs, npm), so the Node clients were not tested")
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted, installed = (HERE / "package.json").read_text(encoding="utf-8"), FOLDER / "installed.json"
    for file in HERE.iterdir():
        shutil.copyfile(file, FOLDER / file.name)
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(FOLDER)]
        done = subprocess.run(install, capture_output=True, text=True, check=False, cwd=FOLDER)
        if done.returncode:
            pytest.skip(
                f"npm could not install the packages, so the Node clients were not tested: {done.stderr[-300:]}"
            )
        installed.write_text(wanted, encoding="utf-8")
    return FOLDER


def run(folder: Path, script: str, server: LiveServer) -> Any:
    """What a script prints: its answers by name."""
    command = ["node", str(folder / script), server.url, server.model]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_RUN)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def openai(folder: Path, live_server: LiveServer) -> Any:
    return run(folder, "openai.mjs", live_server)


@pytest.fixture(scope="module")
def ai(folder: Path, live_server: LiveServer) -> Any:
    return run(folder, "ai.mjs", live_server)


def check_report(report: dict[str, Any]) -> None:
    assert report["sky"] in ("clear", "cloudy")
    assert isinstance(report["wind"]["isStrong"], bool)
    assert report["wind"]["origin"] in ("north", "south")


def test_openai_chats_and_streams(openai: dict[str, Any]) -> None:
    assert "Paris" in openai["whole"]
    assert openai["streamed"] == openai["whole"]
    assert 0 < openai["completionTokens"] <= 12


def test_openai_calls_a_tool_and_reads_its_result(openai: dict[str, Any]) -> None:
    tools = openai["tools"]
    [[name, arguments]] = tools["whole"]
    assert name == NAME
    GetWeather.model_validate_json(arguments)
    assert tools["streamed"] == tools["whole"]
    assert tools["answer"]


def test_openais_own_runner_of_tools(openai: dict[str, Any]) -> None:
    """It sends the choice with every turn, so that every turn is a call."""
    assert openai["ranTools"]["roles"] == ["user", "assistant", "tool", "assistant", "tool"]
    assert len(openai["ranTools"]["ran"]) == 2
    for arguments in openai["ranTools"]["ran"]:
        GetWeather.model_validate(arguments)


def test_openai_structured_output(openai: dict[str, Any]) -> None:
    check_report(openai["structured"]["whole"])
    assert openai["structured"]["streamed"] == openai["structured"]["whole"]


def test_openai_responses(openai: dict[str, Any]) -> None:
    responses = openai["responses"]
    check_report(responses["whole"])
    assert responses["streamed"] == responses["whole"]
    assert responses["types"].count("response.output_text.delta") > 1
    assert responses["types"][-1] == "response.completed"
    *said, arguments = responses["call"]
    assert said == ["function_call", NAME]
    GetWeather.model_validate_json(arguments)
    assert responses["answer"]


def test_openai_completions_and_models(openai: dict[str, Any], live_server: LiveServer) -> None:
    assert openai["choices"] == [0, 1]
    assert live_server.model in openai["models"]


def test_openai_errors_have_their_classes(openai: dict[str, Any]) -> None:
    assert openai["wrongModel"]["name"] == "NotFoundError"
    assert openai["wrongModel"]["code"] == "model_not_found"
    assert openai["badField"]["name"] == "BadRequestError"
    assert openai["badField"]["param"] == "temperature"


def test_openai_batch(openai: dict[str, Any]) -> None:
    assert openai["batch"] == openai["whole"]


PROVIDERS = pytest.mark.parametrize("provider", ["compatible", "chat", "responses"])
"""Of the AI SDK: `@ai-sdk/openai-compatible`, and both APIs of `@ai-sdk/openai`."""


@PROVIDERS
def test_ai_streams_text(ai: dict[str, Any], provider: str) -> None:
    texts = ai[provider]["texts"]
    assert texts["whole"]
    assert texts["streamed"] == texts["whole"]
    assert 0 < texts["outputTokens"] <= 12
    assert texts["finishReason"] in ("stop", "length")


@PROVIDERS
def test_ai_calls_a_tool_and_reads_its_result(ai: dict[str, Any], provider: str) -> None:
    tools = ai[provider]["tools"]
    first, second = tools["whole"]
    [call] = first["calls"]
    assert (call["name"], call["invalid"]) == (NAME, False)
    GetWeather.model_validate(call["input"])
    assert second["text"]
    assert not second["calls"]
    assert tools["streamed"] == tools["whole"]
    assert tools["ran"] == [call["input"]] * 2  # once for the whole answer, once for the stream
    assert tools["parts"].count("tool-input-delta") > 1


@PROVIDERS
def test_ai_structured_output(ai: dict[str, Any], provider: str) -> None:
    objects = ai[provider]["objects"]
    check_report(objects["whole"])
    assert objects["streamed"] == objects["whole"]
    assert objects["partials"] > 1
