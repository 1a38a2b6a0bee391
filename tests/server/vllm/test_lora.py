"""Adapters over HTTP with the real default model: loaded, used and unloaded beside running requests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI

from benchmarks.random_adapters import write_adapters
from quire.models.loading.locate import locate
from quire.protocol.schemas.status import ADAPTERS, STATS
from quire.server.gate.new_key import append_entry, new_key
from tests.server.live import MODEL, LiveServer, running_server

KEY = "an-admin-key-for-tests"
NAMES = ("adapter-0", "adapter-1", "adapter-2", "adapter-3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    write_adapters(str(locate(MODEL)), folder, [8, 16, 4, 24], spread=0.3)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--enable-lora", "--lora-modules", f"zero={folder}/adapter-0", f"one={folder}/adapter-1")
    limits = ("--max-loras", "3", "--max-lora-rank", "32", "--max-model-len", "2048")
    with running_server(tmp_path_factory.mktemp("server"), *options, *limits, key=KEY) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, timeout=240) as client:
        yield client


def answer(client: OpenAI, model: str, tokens: int = 12) -> str:
    messages: list[Any] = [{"role": "user", "content": "Name three rivers of Europe."}]
    found = client.chat.completions.create(model=model, messages=messages, temperature=0.0, max_tokens=tokens)
    assert found.model == model
    return found.choices[0].message.content or ""


def names_of(shown: dict[str, Any]) -> set[str]:
    """Of an answer of /stats/adapters."""
    return {each["name"] for replica in shown["replicas"] for each in replica["adapters"]}


def post(server: LiveServer, what: str, **body: str) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{what}_lora_adapter", json=body, headers=server.headers, timeout=240)


def test_adapters_are_models_with_a_parent(client: OpenAI) -> None:
    cards = {card.id: card.model_dump() for card in client.models.list()}
    assert cards[MODEL]["parent"] is None
    assert cards["zero"]["parent"] == MODEL
    assert client.models.retrieve("one").id == "one"
    assert len({answer(client, name) for name in (MODEL, "zero", "one")}) == 3


def test_stats_tell_where_adapters_are(server: LiveServer, client: OpenAI) -> None:
    answer(client, "zero")
    hits = server.get("/stats")["lora"]["hits"]
    answer(client, "zero")
    while (found := server.get("/stats"))["lora"]["hits"] == hits:  # it has been counted, and is told within a second
        pass
    Draft202012Validator(STATS).validate(found)
    lora = found["lora"]
    assert lora["hits"] == hits + 1
    assert lora["on_device"] >= 1
    assert lora["on_host"] >= 1
    assert lora["loads"] >= 1
    assert lora["hits_per_second"] > 0
    assert found["speculation"] is None
    while not any((history := server.get("/stats/history"))["adapter_hits_per_second"]):
        pass
    assert max(history["adapters_on_device"]) >= 1
    shown = server.get("/stats/adapters")
    Draft202012Validator(ADAPTERS).validate(shown)
    [replica] = shown["replicas"]
    [zero] = [each for each in replica["adapters"] if each["name"] == "zero"]
    assert zero == {"name": "zero", "place": "device", "running": 0, "waiting": 0}


def test_an_unknown_adapter_is_told_with_the_known_ones(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="zero") as caught:
        answer(client, "nobody")
    assert caught.value.code == "model_not_found"


def test_load_and_unload_beside_running_requests(server: LiveServer, client: OpenAI, folder: Path) -> None:
    expected = {name: answer(client, name) for name in (MODEL, "zero", "one")}
    with ThreadPoolExecutor(16) as pool:
        running = [(name, pool.submit(answer, client, name)) for name in [*expected] * 5]
        assert post(server, "load", lora_name="two", lora_path=str(folder / "adapter-2")).text.startswith("Success")
        assert post(server, "load", lora_name="three", lora_path=str(folder / "adapter-3")).status_code == 200
        running += [(name, pool.submit(answer, client, name)) for name in ("two", "three", "two", "three")]
        results = [(name, future.result()) for name, future in running]
    for name in ("two", "three"):  # alone, and in company
        expected[name] = answer(client, name)
    assert all(text == expected[name] for name, text in results)
    assert post(server, "load", lora_name="two", lora_path=str(folder / "adapter-2")).status_code == 400
    assert server.metric("quire_lora_adapter_loads_total") >= 4


def test_what_cannot_be_loaded_is_told_why(server: LiveServer, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8, "modules_to_save": ["lm_head"]}')
    wrong = ((tmp_path, 400, "modules_to_save"), (folder, 400, "adapter_config"), (tmp_path / "no", 404, "no folder"))
    for path, status, told in wrong:
        found = post(server, "load", lora_name="bad", lora_path=str(path))
        assert found.status_code == status
        assert told in found.json()["error"]["message"]
    again = post(server, "load", lora_name="zero", lora_path=str(folder / "adapter-0"))
    assert "already been loaded" in again.json()["error"]["message"]
    assert httpx.post(f"{server.url}/v1/load_lora_adapter", json={}, timeout=60).status_code == 401


def test_keys_may_be_bound_to_adapters(folder: Path, tmp_path: Path) -> None:
    bound, keys = new_key("bound", {"models": ["adapter-1"]}), tmp_path / "keys.yaml"
    append_entry(keys, bound.entry)
    options = ("--enable-lora", "--lora-dir", str(folder), "--max-lora-rank", "32", "--keys", str(keys))
    with running_server(tmp_path, *options, key=KEY) as server:
        with OpenAI(base_url=f"{server.url}/v1", api_key=bound.secret, max_retries=0, timeout=240) as client:
            assert answer(client, "adapter-1")
            assert [card.id for card in client.models.list()] == ["adapter-1"]
            for name in ("adapter-0", MODEL):
                with pytest.raises(openai.NotFoundError, match="may not use"):
                    answer(client, name)
        headers = {"Authorization": f"Bearer {bound.secret}"}
        with OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, timeout=240) as admin:
            assert answer(admin, "adapter-0")
        everything, own = set(), set()
        while "adapter-0" not in everything:
            everything = names_of(server.get("/stats/adapters"))
            own = names_of(httpx.get(f"{server.url}/stats/adapters", headers=headers, timeout=60).json())
        assert own == {"adapter-1"}
        refused = httpx.post(f"{server.url}/v1/unload_lora_adapter", json={"lora_name": "x"}, headers=headers)
        assert refused.status_code == 403
