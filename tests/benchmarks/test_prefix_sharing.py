"""The sharing benchmark's parts: what is shared, what is timed, and both workloads against a real server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.server_process import RunningServer
from benchmarks.prefix_sharing.chat import ChatWorkload, run_chat
from benchmarks.prefix_sharing.choice_moments import ChoiceMoments
from benchmarks.prefix_sharing.samples import SampleWorkload, run_samples
from quire.bench.vocabulary import Vocabulary
from quire.models.loading.fetch import fetch
from quire.text.load import load_tokenizer
from tests.server.live import MODEL, running_server

CHAT = ChatWorkload(users=4, at_once=2, system=64, question=8, answer=4)
SAMPLES = SampleWorkload(answers=4, prompt=64, answer=6)


def event(told: Any) -> bytes:
    return f"data: {json.dumps(told)}\n\n".encode()


def piece(index: int, text: str) -> bytes:
    return event({"choices": [{"index": index, "text": text}]})


def test_every_choice_has_a_first_moment() -> None:
    moments = ChoiceMoments()
    moments.begin(200, 0)
    moments.body(piece(1, "a"), 10)
    moments.body(piece(0, "b") + piece(1, "c"), 20)
    moments.body(piece(0, "d"), 30)
    moments.body(event({"choices": [], "usage": {"completion_tokens": 4}}) + b"data: [DONE]\n\n", 40)
    assert moments.firsts == {1: 10, 0: 20}
    assert moments.ended == 30
    moments.check(choices=2, tokens=2)
    with pytest.raises(RuntimeError, match="3 answers of 2 tokens were asked for; there came 2 answers of 4"):
        moments.check(choices=3, tokens=2)


def test_an_error_is_told() -> None:
    moments = ChoiceMoments()
    moments.begin(400, 0)
    moments.body(b"no such model", 1)
    with pytest.raises(RuntimeError, match="answered 400: no such model"):
        moments.check(1, 1)


def test_users_share_the_system_prompt_and_nothing_else() -> None:
    first, second = (CHAT.requests(Vocabulary(), seed) for seed in (1, 2))
    contents = [[message["content"] for message in request.messages or []] for request in first]
    assert len({system for system, _ in contents}) == 1
    assert len({question for _, question in contents}) == CHAT.users
    assert first[0].messages != second[0].messages


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("sharing")) as live:
        port = int(live.url.rpartition(":")[2])
        yield RunningServer(live.process, port, MODEL, time.perf_counter(), live.log)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(load_tokenizer(fetch(MODEL).path))


def test_chats_find_the_system_prompt_in_the_cache(server: RunningServer, vocabulary: Vocabulary) -> None:
    found = run_chat(server, CHAT, vocabulary, seed=1)
    assert 0 < found.ttft < found.e2e
    assert found.output == pytest.approx(found.requests * CHAT.answer)
    assert found.cached > 0.2  # the first two may come at once, and then both compute it


@pytest.mark.parametrize("together", [True, False])
def test_answers_are_whole_as_one_request_or_as_several(
    server: RunningServer, vocabulary: Vocabulary, together: bool
) -> None:
    found = run_samples(server, SAMPLES, SAMPLES.ids(vocabulary, 10 + together), together)
    assert 0 < found.firsts <= found.whole
    assert found.output == pytest.approx(SAMPLES.answers * SAMPLES.answer / found.whole)


def test_a_start_that_fails_shows_the_log(tmp_path: Path) -> None:
    from benchmarks.peers.server_process import ServerCommand, running

    command = ServerCommand(["sh", "-c", "echo out of order; exit 3"], "m")
    with (
        running(lambda port: command, 1, tmp_path / "log") as started,
        pytest.raises(RuntimeError, match=r"ended with 3(.|\n)*out of order"),
    ):
        started.first_token([1, 2])
