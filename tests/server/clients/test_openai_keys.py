"""What OpenAI's client raises where a server has keys: wrong ones, and ones that have used up their share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from quire.server.gate.new_key import NewKey, append_entry, new_key
from tests.server.live import LiveServer, running_server

QUESTION: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def keys() -> dict[str, NewKey]:
    return {
        "free": new_key("free", {}),
        "hasty": new_key("hasty", {"requests_per_minute": 2}),
        "elsewhere": new_key("elsewhere", {"models": ["another-model"]}),
    }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, NewKey]) -> Iterator[LiveServer]:
    folder: Path = tmp_path_factory.mktemp("keys")
    for key in keys.values():
        append_entry(folder / "keys.yaml", key.entry)
    with running_server(folder, "--keys", str(folder / "keys.yaml"), key="the-master-key-of-this-test-run") as server:
        yield server


def ask(server: LiveServer, key: str) -> Any:
    with OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=120) as client:
        return client.chat.completions.create(model=server.model, messages=QUESTION, max_tokens=1)


def test_a_good_key_is_let_in(guarded: LiveServer, keys: dict[str, NewKey]) -> None:
    assert ask(guarded, keys["free"].secret).choices
    assert ask(guarded, guarded.key or "").choices


def test_a_wrong_key_is_an_authentication_error(guarded: LiveServer, keys: dict[str, NewKey]) -> None:
    for wrong in ("none", keys["free"].secret[:-1], keys["free"].secret + "x"):
        with pytest.raises(openai.AuthenticationError) as caught:
            ask(guarded, wrong)
        assert caught.value.code == "invalid_api_key"


def test_a_key_that_asks_too_often_is_a_rate_limit_error(guarded: LiveServer, keys: dict[str, NewKey]) -> None:
    for _ in range(2):
        ask(guarded, keys["hasty"].secret)
    with pytest.raises(openai.RateLimitError) as caught:
        ask(guarded, keys["hasty"].secret)
    assert caught.value.code == "rate_limit_exceeded"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert ask(guarded, keys["free"].secret).choices


def test_a_key_for_another_model_does_not_find_this_one(guarded: LiveServer, keys: dict[str, NewKey]) -> None:
    with pytest.raises(openai.NotFoundError):
        ask(guarded, keys["elsewhere"].secret)


def test_batches_belong_to_their_key(guarded: LiveServer, keys: dict[str, NewKey]) -> None:
    with OpenAI(base_url=f"{guarded.url}/v1", api_key=keys["free"].secret, max_retries=0) as client:
        file = client.files.create(file=("in.jsonl", b"{}\n"), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    with OpenAI(base_url=f"{guarded.url}/v1", api_key=guarded.key, max_retries=0) as other:
        for look in (
            lambda: other.files.retrieve(file.id),
            lambda: other.batches.retrieve(batch.id),
            lambda: other.batches.cancel(batch.id),
        ):
            with pytest.raises(openai.NotFoundError):
                look()
