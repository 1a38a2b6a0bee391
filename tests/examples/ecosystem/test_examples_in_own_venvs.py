"""Examples whose packages are large or want other versions than the tests have: each in an environment of its own.

The environment gets what the example's first lines say, so that these are true as well.
"""

import json
import re
import secrets
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.examples.ecosystem.folder import (
    ECOSYSTEM,
    free_port,
    own_venv,
    refused,
    requirements,
    said_by,
    started,
    variables,
)
from tests.parity.minilm import fetch_minilm
from tests.server.live import LiveServer, running_server

pytestmark = pytest.mark.slow

QUESTION: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
    "temperature": 0,
    "max_tokens": 20,
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("ecosystem")) as server:
        yield server


def direct(server: LiveServer, path: str, body: dict[str, Any]) -> Any:
    """What the server itself answers, without anybody between."""
    with server.client() as client:
        return client.post(path, json={"model": server.model, **body}).raise_for_status().json()


def streamed_text(client: httpx.Client, body: dict[str, Any]) -> str:
    text = ""
    with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line.removeprefix("data: "))["choices"]:
                    text += choice["delta"].get("content") or ""
    return text


def test_haystack(server: LiveServer, tmp_path: Path) -> None:
    programs = own_venv(tmp_path / "venv", "haystack_pipeline.py")
    command = [str(programs / "python"), str(ECOSYSTEM / "haystack_pipeline.py")]
    said = said_by(command, variables(server), tmp_path)
    assert re.search(r"^found:\n  \S.*\n  \S.*\nanswer: \S", said, re.MULTILINE), said
    assert re.search(r"^stream: .*Paris.*\|", said, re.MULTILINE), said
    [weeks] = re.findall(r"^tool: due_date \{'weeks': ([1-4])\}$", said, re.MULTILINE)
    assert f"result: in {7 * int(weeks)} days" in said
    assert re.search(r"^structured: Loan\(kind='(book|film)', is_for_a_child=(True|False)\)$", said, re.MULTILINE), said
    assert refused(server) == []


def test_dspy(server: LiveServer, tmp_path: Path) -> None:
    programs = own_venv(tmp_path / "venv", "dspy_program.py")
    said = said_by([str(programs / "python"), str(ECOSYSTEM / "dspy_program.py")], variables(server), tmp_path)
    topics = re.findall(r"topic='(billing|delivery|damage)',\s+is_angry=(?:True|False)", said)
    assert len(topics) == 2, said
    assert re.search(r"^thoughtful: Prediction\(\s+reasoning=", said, re.MULTILINE), said
    assert re.search(r"^right before: [\d.]+ after: [\d.]+$", said, re.MULTILINE), said
    assert refused(server) == []


def test_lm_eval(server: LiveServer, tmp_path: Path) -> None:
    """The command of its page, with the address of this server."""
    programs = own_venv(tmp_path / "venv", "lm_eval/README.md")
    page = (ECOSYSTEM / "lm_eval" / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    [line] = re.findall(r"^lm-eval .*$", page, re.MULTILINE)
    words = line.replace("http://127.0.0.1:8000", server.url).split()
    command = [str(programs / words[0]), *words[1:], "--output_path", str(tmp_path / "results")]
    said_by(command, variables(server, HF_HOME=str(tmp_path / "hub")), ECOSYSTEM / "lm_eval")
    [written] = (tmp_path / "results").rglob("*.json")
    found = json.loads(written.read_text(encoding="utf-8"))
    items = (ECOSYSTEM / "lm_eval" / "capitals.jsonl").read_text(encoding="utf-8").splitlines()
    assert {task: counts["original"] for task, counts in found["n-samples"].items()} == {
        "quire_capitals": len(items),
        "quire_countries": len(items),
    }
    # a choice of four by chance is a quarter; texts that are scored wrongly come to about that
    assert found["results"]["quire_capitals"]["acc,none"] >= 0.75
    assert found["results"]["quire_countries"]["exact_match,none"] >= 0.5
    assert refused(server) == []


def test_litellm_proxy(server: LiveServer, tmp_path: Path) -> None:
    """What comes through it is what quire says without it."""
    programs = own_venv(tmp_path / "venv", "litellm_proxy.yaml")
    port, key = free_port(), f"sk-{secrets.token_hex(24)}"
    given = {"QUIRE_BASE_URL": f"{server.url}/v1", "QUIRE_API_KEY": "none", "LITELLM_MASTER_KEY": key}
    command = [str(programs / "litellm"), "--config", str(ECOSYSTEM / "litellm_proxy.yaml"), "--host", "127.0.0.1"]
    address, allowed = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {key}"}
    with (
        started([*command, "--port", str(port)], variables(server, **given), tmp_path, f"{address}/health/liveliness"),
        httpx.Client(base_url=address, headers=allowed, timeout=300) as client,
    ):

        def ask(path: str, body: dict[str, Any]) -> Any:
            return client.post(path, json={"model": "quire", **body}).raise_for_status().json()

        said = ask("/v1/chat/completions", QUESTION)["choices"][0]["message"]["content"]
        assert said == direct(server, "/v1/chat/completions", QUESTION)["choices"][0]["message"]["content"]
        assert streamed_text(client, {"model": "quire", **QUESTION}) == said
        choice = {"type": "function", "function": {"name": "get_weather"}}
        forced = {**QUESTION, "max_tokens": 80, "tools": [WEATHER], "tool_choice": choice}
        [call] = ask("/v1/chat/completions", forced)["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Oslo")
        texts = {"input": ["a dog", "soup"]}
        vectors = [one["embedding"] for one in ask("/v1/embeddings", texts)["data"]]
        assert vectors[0] == pytest.approx(direct(server, "/v1/embeddings", texts)["data"][0]["embedding"], abs=1e-5)
        ranked = ask("/v1/rerank", {"query": "a dog", "documents": ["soup", "a dog"]})["results"]
        assert [one["index"] for one in ranked] == [1, 0]
        message = ask("/v1/messages", QUESTION)
        assert message["content"][0]["text"] == said
        assert ask("/v1/responses", {"input": "Hello", "max_output_tokens": 8})["output"]
        stranger = client.get("/v1/models", headers={"Authorization": "Bearer sk-other"})
        assert stranger.status_code in (400, 401)
    assert refused(server) == []


@pytest.fixture(scope="module")
def with_fastchat(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has FastChat."""
    return str(own_venv(tmp_path_factory.mktemp("fastchat") / "venv", "fastchat_worker.py") / "python")


def test_fastchat(server: LiveServer, with_fastchat: str, tmp_path: Path) -> None:
    """Its controller and its OpenAI server find quire through the worker."""
    python, environment = with_fastchat, variables(server, LOGDIR=str(tmp_path))
    control, work, serve = free_port(), free_port(), free_port()
    controller, worker = f"http://127.0.0.1:{control}", f"http://127.0.0.1:{work}"
    at_controller = ["--controller-address", controller]
    start_controller = [python, "-m", "fastchat.serve.controller", "--host", "127.0.0.1", "--port", str(control)]
    start_worker = [python, str(ECOSYSTEM / "fastchat_worker.py"), *at_controller, "--port", str(work)]
    start_server = [python, "-m", "fastchat.serve.openai_api_server", *at_controller, "--port", str(serve)]
    with (
        started(start_controller, environment, tmp_path, f"{controller}/test_connection"),
        started(start_worker, environment, tmp_path, f"{worker}/docs"),
        started(start_server, environment, tmp_path, f"http://127.0.0.1:{serve}/v1/models"),
        httpx.Client(base_url=f"http://127.0.0.1:{serve}", timeout=300) as client,
    ):
        assert [card["id"] for card in client.get("/v1/models").json()["data"]] == [server.model]
        asked = {"model": server.model, **QUESTION}
        whole = client.post("/v1/chat/completions", json=asked).raise_for_status().json()
        said = whole["choices"][0]["message"]["content"]
        assert "Paris" in said
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert whole["usage"]["completion_tokens"] > 3
        assert streamed_text(client, asked) == said
        prompt = {"prompt": "One, two, three,", "max_tokens": 4, "temperature": 0, "logprobs": 2}
        found = client.post("/v1/completions", json={"model": server.model, **prompt}).raise_for_status().json()
        expected = direct(server, "/v1/completions", prompt)["choices"][0]
        assert found["choices"][0]["text"] == expected["text"]
        assert found["choices"][0]["logprobs"]["tokens"] == expected["logprobs"]["tokens"]
        texts = {"model": server.model, "input": ["a dog", "soup"]}
        vectors = client.post("/v1/embeddings", json=texts).raise_for_status().json()["data"]
        assert vectors[1]["embedding"] == pytest.approx(
            direct(server, "/v1/embeddings", texts)["data"][1]["embedding"], abs=1e-5
        )
        assert refused(server) == []
        wrong = client.post("/v1/chat/completions", json={**asked, "frequency_penalty": 9}).json()
        assert wrong["code"] == 40001
        assert "frequency_penalty is 9" in wrong["message"]
        body = {"model": server.model, "prompt": prompt["prompt"], "max_new_tokens": 4, "temperature": 0}
        pieces = httpx.post(f"{controller}/worker_generate_stream", json=body, timeout=300).content.split(b"\0")
        assert [json.loads(piece)["text"] for piece in pieces if piece][-1] == expected["text"]


def test_fastchat_worker_registers_again(server: LiveServer, with_fastchat: str, tmp_path: Path) -> None:
    """A controller that was replaced knows no workers; their heartbeats tell them so."""
    python = with_fastchat
    environment = variables(server, LOGDIR=str(tmp_path), FASTCHAT_WORKER_HEART_BEAT_INTERVAL="1")
    control, work = free_port(), free_port()
    controller = f"http://127.0.0.1:{control}"
    start_controller = [python, "-m", "fastchat.serve.controller", "--host", "127.0.0.1", "--port", str(control)]
    start_worker = [
        python,
        str(ECOSYSTEM / "fastchat_worker.py"),
        "--controller-address",
        controller,
        "--port",
        str(work),
    ]
    at_controller = f"{controller}/test_connection"
    with ExitStack() as first:
        first.enter_context(started(start_controller, environment, tmp_path, at_controller))
        with started(start_worker, environment, tmp_path, f"http://127.0.0.1:{work}/docs"):
            assert httpx.post(f"{controller}/list_models").json()["models"] == [server.model]
            first.close()
            with started(start_controller, environment, tmp_path, at_controller):
                assert models_before_long(controller) == [server.model]


def models_before_long(controller: str) -> list[str]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if known := httpx.post(f"{controller}/list_models").json()["models"]:
            return list(known)
        time.sleep(0.2)
    return []


def test_retrieval_with_a_model_that_is_made_for_it(server: LiveServer, tmp_path: Path) -> None:
    """The text that answers the question comes first, with MiniLM for the vectors and the ranking."""
    pytest.importorskip("llama_index.embeddings.openai_like", reason="needs the test extra")
    earlier = refused(server)  # another test asks for what is wrong
    with running_server(tmp_path, model=str(fetch_minilm(tmp_path))) as embedder:
        environment = variables(server, QUIRE_EMBEDDING_URL=embedder.url)
        said = said_by([sys.executable, str(ECOSYSTEM / "llamaindex_rag.py")], environment, tmp_path)
        assert refused(embedder) == []
    for kind in ("found", "ranked"):
        first = re.findall(rf"^{kind} \S+: (.*)$", said, re.MULTILINE)[0]
        assert first.startswith("A ticket costs eight euros."), said
    assert re.search(r"^answer: \S", said, re.MULTILINE), said  # what it makes of the texts is up to a small model
    assert refused(server) == earlier


def test_open_webui_reads_the_variables_of_the_compose_file(server: LiveServer, tmp_path: Path) -> None:
    """In the package of the image's version. It is not started: what it depends on is several gigabytes."""
    service = yaml.safe_load((ECOSYSTEM / "open_webui.compose.yml").read_text(encoding="utf-8"))["services"][
        "open-webui"
    ]
    [version] = re.findall(r":v([\d.]+)\}", service["image"])
    [package] = requirements("open_webui.compose.yml")
    wheel = f"{package}=={version}"
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.12", "--dest", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, wheel], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"{wheel} cannot be fetched: {done.stderr.strip()[-300:]}")
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as files:
        read = "".join(files.read(f"open_webui/{name}.py").decode() for name in ("config", "env"))
        ranks = files.read("open_webui/retrieval/models/external.py").decode()
    for name in service["environment"]:
        assert re.search(rf"""['"]{name}['"]""", read), name
    sent = re.findall(r"^ +'(\w+)': ", ranks.partition("payload = {")[2].partition("}")[0], re.MULTILINE)
    values: dict[str, Any] = {"model": server.model, "query": "a dog", "documents": ["soup", "a dog"], "top_n": 2}
    assert set(sent) == set(values)
    ranked = direct(server, "/v1/rerank", {name: values[name] for name in sent})["results"]
    assert {(one["index"], one["relevance_score"] > 0.9) for one in ranked} == {(0, False), (1, True)}
