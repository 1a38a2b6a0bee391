"""quire's application on a real Ray Serve, with the default model: streams, lost replicas, scaling and drains."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import ray
import yaml
from openai import OpenAI
from ray import serve

from tests.deploy.served import PACKAGE, application, holder, members, ray_serve, replicas, until
from tests.lora.peft_folders import save_adapter
from tests.server.load import CHAT, COMPLETIONS, Answer, ask, client_of

pytestmark = pytest.mark.slow
MODEL = {"model": "smollm2", "gpu_memory_utilization": 0.1}
KEY = "k" * 32
OPENS = {"authorization": f"Bearer {KEY}"}
TWO = {"server": {"min_replicas": 2, "max_replicas": 2}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, ray_serve(patch) as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("store"))


def bodies(count: int, tokens: int) -> list[tuple[str, dict[str, Any]]]:
    """Greedy and sampled, streamed and whole, chats and completions."""
    made = []
    for number in range(count):
        text = f"Write about the number {number} and the sea."
        body: dict[str, Any] = {"max_tokens": tokens, "ignore_eos": True, "stream": number % 5 != 4}
        body |= {"temperature": 0} if number % 2 else {"temperature": 0.9, "seed": number}
        if number % 3:
            made.append((CHAT, body | {"messages": [{"role": "user", "content": text}]}))
        else:
            made.append((COMPLETIONS, body | {"prompt": text}))
    return made


async def ask_all(url: str, count: int, tokens: int) -> list[Answer]:
    async with client_of(url) as client:
        return list(await asyncio.gather(*(ask(client, path, body) for path, body in bodies(count, tokens))))


def texts(answers: list[Answer], tokens: int) -> list[Any]:
    for answer in answers:
        assert answer.status == 200, answer.error
        assert answer.error is None, answer.error
        assert answer.is_done
        assert answer.tokens == tokens
    return [answer.texts for answer in answers]


def resumed(url: str) -> float:
    lines = httpx.get(url + "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("quire_router_resumed_total{"))


def test_two_replicas_answer_and_one_may_be_killed(url: str, store: str) -> None:
    with application({**MODEL, "store": store, "scaling": TWO}):
        until(lambda: len(members(url)) == 2)
        check_surface(url)

        quiet = texts(asyncio.run(ask_all(url, 12, 48)), 48)
        before, restarted = resumed(url), {process.pid for process in replicas("Server")}
        assert len(restarted) == 2

        async def meanwhile() -> list[Answer]:
            asking = asyncio.create_task(ask_all(url, 12, 48))
            await asyncio.to_thread(until, lambda: all(each["requests"] for each in members(url)), 60)
            await asyncio.sleep(1.0)
            busiest = max(members(url), key=lambda each: each["requests"])
            os.kill(holder(busiest["url"]), signal.SIGKILL)
            print("killed", busiest["url"], "with", busiest["requests"], "requests")
            return await asking

        began = time.monotonic()
        assert texts(asyncio.run(meanwhile()), 48) == quiet
        print(f"{resumed(url) - before:g} went on elsewhere; {time.monotonic() - began:.1f} s in all")
        assert resumed(url) > before
        until(lambda: len({process.pid for process in replicas("Server")} | restarted) == 3)
        until(lambda: len(members(url)) == 2)
        assert len(texts(asyncio.run(ask_all(url, 2, 8)), 8)) == 2

        [gateway] = replicas("Gateway")
        assert "[DONE]" not in read_until_cut(url, gateway)
        until(lambda: answers(url + "/ready"))
        assert len(texts(asyncio.run(ask_all(url, 2, 8)), 8)) == 2


def read_until_cut(url: str, gateway: psutil.Process) -> str:
    """What a client gets of a stream whose gateway is killed."""
    read = ""
    body = {"prompt": "Once", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    try:
        with httpx.stream("POST", url + COMPLETIONS, json=body, timeout=60) as response:
            for line in response.iter_lines():
                read += line
                if gateway.is_running() and read.count("data: ") == 5:
                    gateway.kill()
        print("a lost gateway ends its streams early, without an error")
    except httpx.HTTPError as error:
        print("a lost gateway's streams end with", type(error).__name__, error)
    return read


def check_surface(url: str) -> None:
    """Clients of all kinds, through Serve's proxy."""
    client = OpenAI(base_url=url + "/v1", api_key="none")
    asked: Any = {"model": "smollm2", "messages": [{"role": "user", "content": "Name three rivers."}]}
    whole = client.chat.completions.create(**asked, max_tokens=24, temperature=0).choices[0].message.content
    pieces, times = [], []
    for chunk in client.chat.completions.create(**asked, max_tokens=24, temperature=0, stream=True):
        pieces.append(chunk.choices[0].delta.content or "")
        times.append(time.monotonic())
    assert "".join(pieces) == whole
    assert len({round(each, 2) for each in times}) > 5, "a stream came at once"
    message = httpx.post(
        url + "/v1/messages", json={"model": "smollm2", "max_tokens": 8, "messages": asked["messages"]}, timeout=60
    ).json()
    assert message["role"] == "assistant"
    stored = client.files.create(file=("a.jsonl", b'{"custom_id": "1"}\n'), purpose="batch")
    assert client.files.content(stored.id).read() == b'{"custom_id": "1"}\n'
    assert stored.id in [each.id for each in client.files.list()]
    response = client.responses.create(model="smollm2", input="Say hello.", max_output_tokens=8)
    assert client.responses.retrieve(response.id).output_text == response.output_text
    assert "<html" in httpx.get(url + "/", timeout=60).text
    wrong = httpx.post(url + CHAT, json={**asked, "temperature": -1}, timeout=60)
    assert wrong.status_code == 400
    assert "temperature" in wrong.json()["error"]["message"]
    assert asyncio.run(over_a_socket(url, {**asked, "max_tokens": 8})) == "done"


async def over_a_socket(url: str, body: dict[str, Any]) -> str:
    from websockets.asyncio.client import connect

    async with connect("ws" + url.removeprefix("http") + "/v1/stream") as socket:
        await socket.send(json.dumps({"type": "start", "id": "1", "url": CHAT, "body": body}))
        async for message in socket:
            told = json.loads(message)
            if told["type"] in ("done", "error"):
                return str(told["type"])
    return "closed"


SCALED = {
    "min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 2, "upscale_delay_s": 1, "downscale_delay_s": 3,
    "look_back_period_s": 11,
}  # fmt: skip


def test_replicas_come_under_load_and_go_without_cutting_a_stream(url: str, store: str) -> None:
    with application({**MODEL, "api_key": KEY, "store": store, "scaling": {"server": SCALED}}):
        until(lambda: len(members(url, OPENS)) == 1)
        asyncio.run(grow_and_shrink(url, tokens=tokens_of(25.0, url)))
        until(lambda: len(replicas("Server")) == 1)


def tokens_of(seconds: float, url: str) -> int:
    """About how many one stream gets in that time, alone."""
    began = time.monotonic()
    body = {"prompt": "Once", "max_tokens": 64, "ignore_eos": True}
    httpx.post(url + COMPLETIONS, headers=OPENS, json=body, timeout=120).raise_for_status()
    return max(300, min(int(64 * seconds / (time.monotonic() - began)), 4000))


async def grow_and_shrink(url: str, tokens: int) -> None:
    """Eight clients until there are three replicas; then a long stream in each of them, while fewer are needed.

    A stream that is pinned to its member cannot go on elsewhere: it would fail if its replica did not wait for it.
    """
    began, stopped = time.monotonic(), asyncio.Event()
    clients = [asyncio.create_task(ask_until(stopped, url, number)) for number in range(8)]
    await asyncio.to_thread(until, lambda: len(members(url, OPENS)) == 3)
    print(f"three servers take work {time.monotonic() - began:.1f} s after the load began")
    body = {"max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0.7, "prompt": "A story"}
    async with AsyncExitStack() as stack:
        running = []
        for member in members(url, OPENS):
            pinned = await stack.enter_async_context(client_of(url, OPENS | {"x-quire-member": str(member["id"])}))
            running.append(asyncio.create_task(ask(pinned, COMPLETIONS, body)))
        began = time.monotonic()
        draining = asyncio.create_task(asyncio.to_thread(until, lambda: members(url, OPENS, "draining")))
        stopped.set()
        answers = [answer for each in await asyncio.gather(*clients) for answer in each]
        print(len(texts(answers, 32)), "answers while replicas came")
        [drained, *_] = await draining
        print(f"server {drained['id']} drains {time.monotonic() - began:.1f} s after the load ended")
        assert not any(each.done() for each in running), "the streams were too short to be in the way"
        assert len(texts(await asyncio.gather(*running), tokens)) == 3
    print(f"the last stream, of {tokens} tokens, is complete after {time.monotonic() - began:.1f} s")


async def ask_until(stopped: asyncio.Event, url: str, number: int) -> list[Answer]:
    """One question after the other."""
    answers = []
    async with client_of(url, OPENS) as client:
        while not stopped.is_set():
            body = {"prompt": f"Once {number}", "max_tokens": 32, "ignore_eos": True, "stream": True}
            answers.append(await ask(client, COMPLETIONS, body))
    return answers


def test_prompts_and_answers_have_replicas_of_their_own(url: str, store: str) -> None:
    one = {"min_replicas": 1, "max_replicas": 1}
    roles = {"server": one, "prefill": one, "decode": {"min_replicas": 2, "max_replicas": 2}}
    with application({**MODEL, "store": store, "scaling": roles}):
        until(lambda: len(members(url)) == 1)
        assert (len(replicas("Prefill")), len(replicas("Decode"))) == (1, 2)

        async def ask_long() -> list[Answer]:
            async with client_of(url) as client:
                body = {"max_tokens": 48, "ignore_eos": True, "stream": True, "temperature": 0}
                asked = [{**body, "prompt": f"The tale of number {number}. " * 60} for number in range(4)]
                return list(await asyncio.gather(*(ask(client, COMPLETIONS, each) for each in asked)))

        quiet = texts(asyncio.run(ask_long()), 48)

        async def meanwhile() -> list[Answer]:
            asking = asyncio.create_task(ask_long())
            await asyncio.to_thread(until, lambda: any(each["requests"] for each in members(url)), 60)
            await asyncio.sleep(1.0)
            os.kill(replicas("Decode")[0].pid, signal.SIGKILL)
            return await asking

        first = members(url)[0]["url"]
        assert texts(asyncio.run(meanwhile()), 48) == quiet
        until(lambda: len(replicas("Decode")) == 2)
        until(lambda: [each["url"] for each in members(url)] not in ([], [first]))  # a front that knows the new engine
        assert texts(asyncio.run(ask_long()), 48) == quiet


def test_keys_a_path_and_adapters(url: str, store: str, tiny_chat: Path, tmp_path: Path) -> None:
    adapters = [save_adapter(tiny_chat, tmp_path / name, seed=number, rank=4) for number, name in enumerate("ab")]
    there = url + "/llm"
    tiny = {
        "model": str(tiny_chat), "served_model_name": "tiny", "num_gpu_blocks_override": 64, "dtype": "float32",
        "enable_lora": True, "lora_modules": " ".join(f"{path.name}={path}" for path in adapters),
    }  # fmt: skip
    with (
        application({**tiny, "api_key": KEY, "store": store, "scaling": TWO}, "/llm"),
        httpx.Client(base_url=there, headers=OPENS, timeout=60) as client,
    ):
        until(lambda: client.get("/health").json().get("ready") == 2)
        assert httpx.get(there + "/v1/models", timeout=60).status_code == 401
        until(lambda: {each["id"] for each in client.get("/v1/models").json()["data"]} == {"tiny", "a", "b"})
        for card in client.get("/stats").json()["members"]:
            assert httpx.get(card["url"] + "/v1/models", timeout=60).status_code == 401
        until(lambda: all("a" in each["models"] for each in client.get("/stats").json()["members"]))

        had: dict[str, set[str]] = {"a": set(), "b": set()}
        said: dict[str, str] = {}
        for number in range(12):
            for model in ("a", "b", "tiny"):
                body = {"model": model, "prompt": f"{number} prompt {number}", "max_tokens": 8, "temperature": 0}
                answer = client.post("/v1/completions", json=body)
                said[model] = answer.json()["choices"][0]["text"]
                had.get(model, set()).add(answer.headers["x-quire-member"])
        assert {model: len(members) for model, members in had.items()} == {"a": 1, "b": 1}
        assert len(set(said.values())) == 3


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_config_file_is_deployed_and_a_wrong_one_told(url: str, store: str, tiny_chat: Path, tmp_path: Path) -> None:
    config = yaml.safe_load((PACKAGE / "serve.yaml").read_text(encoding="utf-8"))
    [quire] = config["applications"]
    quire["args"] |= {"model": str(tiny_chat), "num_gpu_blocks_override": 64, "dtype": "float32", "store": store}
    try:
        deploy(config, tmp_path)
        until(lambda: answers(url + "/ready"))
        until(lambda: len(replicas("Gateway")) == quire["args"]["gateways"])
        assert httpx.get(url + "/v1/models", headers={"host": "llm.example.org"}, timeout=60).status_code == 200
        quire["args"]["max_num_seq"] = 8
        deploy(config, tmp_path)
        failed = until(lambda: serve.status().applications["quire"].message)
        assert "ConfigError: args has an unknown key 'max_num_seq'. Did you mean" in failed
    finally:
        serve.delete("quire")


def deploy(config: dict[str, Any], folder: Path) -> None:
    """By Serve's own command."""
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    address = ray.get_runtime_context().gcs_address
    command = [str(Path(sys.executable).parent / "serve"), "run", "--non-blocking", "--address", address, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
