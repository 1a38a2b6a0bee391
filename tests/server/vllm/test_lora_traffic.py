"""Adapters come, go and are refused beside fifty running requests, which are told what a quiet server tells them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
import torch
from openai import OpenAI
from safetensors.torch import load_file

from benchmarks.random_adapters import write_adapters
from tests.lora.peft_folders import rewritten
from tests.server.live import LiveServer, running_server
from tests.tiny_model import make_text_model

KEY = "an-admin-key-for-tests"
BASE = "tiny"
STAYING = (BASE, "adapter-0", "adapter-1", "adapter-2")
"""What the fifty ask for."""
PASSING = {"adapter-3": 8, "adapter-4": 16, "adapter-5": 24}
"""Ranks of what is loaded and unloaded beside them."""
RUNNING = 50
ROUNDS = 2
TOKENS = 24
LONG = 64
"""Tokens of an answer whose adapter is unloaded meanwhile."""
A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
B = A.replace("lora_A", "lora_B")
Asked = tuple[str, str]
"""A model and a prompt."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a folder of adapters, and adapters elsewhere."""
    folder = tmp_path_factory.mktemp("places")
    model = make_text_model(folder / "model").path
    inside, outside = folder / "inside", folder / "outside"
    [*_, large] = write_adapters(str(model), inside, [8, 16, 4, *PASSING.values(), 64], spread=0.3)
    large.rename(inside / "large")
    write_adapters(str(model), outside, [8])
    (inside / "linked").symlink_to(outside / "adapter-0")
    (inside / "circle").symlink_to(inside / "circle")
    good = inside / "adapter-0"
    tensors = load_file(good / "adapter_model.safetensors")
    rewritten(good, inside / "misshapen", tensors | {A: torch.zeros(8, 60)})
    rewritten(good, inside / "halved", {name: each for name, each in tensors.items() if name != B})
    rewritten(good, inside / "pickled")
    (inside / "pickled" / "adapter_model.safetensors").rename(inside / "pickled" / "adapter_model.bin")
    return folder


@pytest.fixture(scope="module")
def server(places: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """With room for one adapter beside those that stay, so that one must leave for another to come."""
    options = ("--enable-lora", "--lora-dir", str(places / "inside"), "--served-model-name", BASE)
    limits = ("--max-loras", "4", "--max-cpu-loras", "4", "--max-lora-rank", "32", "--max-num-seqs", "64")
    model = str(places / "model")
    with running_server(tmp_path_factory.mktemp("server"), *options, *limits, model=model, key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[httpx.Client]:
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=f"{server.url}/v1", headers=server.headers, timeout=240, limits=limits) as client:
        yield client


@pytest.fixture(scope="module")
def expected(client: httpx.Client) -> dict[Asked, str]:
    """What each of the fifty is told when nobody else asks."""
    asked = [(STAYING[number % len(STAYING)], f"Count from {number}.") for number in range(RUNNING)]
    texts = {each: answer(client, *each) for each in asked}
    assert len(set(texts.values())) > RUNNING // 2, "answers tell prompts and adapters apart"
    return texts


def answer(client: httpx.Client, model: str, prompt: str, tokens: int = TOKENS) -> str:
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    found = client.post("/completions", json=body)
    assert found.status_code == 200, found.text
    text: str = found.json()["choices"][0]["text"]
    return text


def post(client: httpx.Client, what: str, name: str, path: Path | str | None = None) -> httpx.Response:
    more = {} if path is None else {"lora_path": str(path)}
    return client.post(f"/{what}_lora_adapter", json={"lora_name": name, **more})


@contextmanager
def fifty_running(client: httpx.Client, expected: dict[Asked, str]) -> Iterator[None]:
    """Beside the block each asks its own again and again; whatever the block does, all are told the same."""
    is_over = Event()
    begun = [Event() for _ in expected]

    def stay(each: Asked, has_begun: Event) -> list[str]:
        texts: list[str] = []
        try:
            while not is_over.is_set():
                texts.append(answer(client, *each))
                has_begun.set()
        finally:
            has_begun.set()
        return texts

    with ThreadPoolExecutor(RUNNING) as pool:
        running = {each: pool.submit(stay, each, event) for each, event in zip(expected, begun, strict=True)}
        try:
            for event in begun:
                event.wait()
            yield
        finally:
            is_over.set()
        for each, future in running.items():
            assert set(future.result()) == {expected[each]}


def test_adapters_come_and_go(
    places: Path, server: LiveServer, client: httpx.Client, expected: dict[Asked, str]
) -> None:
    quiet = {name: answer(client, name, "Count.", LONG) for name in PASSING}
    loads = server.metric("quire_lora_adapter_loads_total")
    with fifty_running(client, expected), OpenAI(base_url=f"{server.url}/v1", api_key=KEY, timeout=240) as users:
        for number in range(ROUNDS):
            for name in PASSING:
                again = f"{name}-{number}"  # under a name of its own, which is on no device yet
                assert post(client, "load", again, places / "inside" / name).status_code == 200
                assert come_and_go(server, client, users, again) == [quiet[name]] * 3
                assert client.post("/completions", json={"model": again, "prompt": "Count."}).status_code == 404
                assert post(client, "unload", again).status_code == 404
    assert server.metric("quire_lora_adapter_loads_total") >= loads + ROUNDS * len(PASSING)
    assert server.metric("quire_lora_adapter_evictions_total") > 0


def come_and_go(server: LiveServer, client: httpx.Client, users: OpenAI, name: str) -> list[str]:
    """Three answers, during which their adapter is unloaded: the unloading ends when all three have ended."""
    more: Any = {"temperature": 0, "max_tokens": LONG, "extra_body": {"ignore_eos": True}}
    streams = [users.completions.create(model=name, prompt="Count.", stream=True, **more) for _ in range(3)]
    first = [next(iter(stream)) for stream in streams]
    ids = {chunk.id.removeprefix("cmpl-") for chunk in first}
    gone = post(client, "unload", name)
    live = {request["id"] for request in server.get("/stats")["requests"]}
    assert gone.status_code == 200, gone.text
    assert not live & ids
    return [
        chunk.choices[0].text + "".join(each.choices[0].text for each in stream if each.choices)
        for chunk, stream in zip(first, streams, strict=True)
    ]


@pytest.mark.parametrize(
    "path", ["{outside}/adapter-0", "{inside}/../outside/adapter-0", "{inside}/linked", "outside/adapter-0"]
)
def test_a_path_outside_the_folder_is_refused(places: Path, client: httpx.Client, path: str) -> None:
    given = path.format(inside=places / "inside", outside=places / "outside")
    refused = post(client, "load", "outsider", given)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "lora_path"
    assert "(--lora-dir), where adapters come from here" in error["message"]
    assert post(client, "load", "outsider", places / "inside" / "adapter-0").status_code == 200
    assert post(client, "unload", "outsider").status_code == 200


@pytest.mark.parametrize("path", ["~nobody-of-this-name/adapter", "nul\0", "{inside}/none", "{inside}/circle"])
def test_a_path_that_leads_nowhere_is_told(places: Path, client: httpx.Client, path: str) -> None:
    refused = post(client, "load", "nowhere", path.format(inside=places / "inside"))
    assert refused.status_code == 404
    assert "the adapter 'nowhere' cannot be used" in refused.json()["error"]["message"]


def test_broken_adapters_harm_no_neighbour(places: Path, client: httpx.Client, expected: dict[Asked, str]) -> None:
    told = {
        "misshapen": (A, "[8, 60]", "[8, 64]"),
        "halved": (A, "no lora_B"),
        "large": ("rank 64", "up to 32", "--max-lora-rank"),
        "pickled": ("adapter_model.bin, a pickle",),
    }
    with fifty_running(client, expected):
        for name, words in told.items():
            loaded = post(client, "load", "broken", places / "inside" / name)
            asked = client.post("/completions", json={"model": name, "prompt": "Count.", "max_tokens": 2})
            for refused in (loaded, asked):
                assert refused.status_code == 400, refused.text
                for word in words:
                    assert word in refused.json()["error"]["message"]


def test_metrics_call_the_model_as_clients_do(server: LiveServer) -> None:
    """Not by the folder that it was read from."""
    assert server.metric("quire_engine_up", model_name=BASE) == server.metric("quire_engine_up") == 1
