"""A batch on a whole tiny model: answers as one by one, refusals beside them, and going on after a stop."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.config.parsers import ParserConfig
from quire.core.sampling_params import SamplingParams
from quire.engine.batch_run import BatchRunner
from quire.engine.engine import Engine
from quire.protocol.batch.lines import read_lines
from quire.protocol.batch.results import ResultFile
from quire.text.chat_template import ChatTemplate
from quire.text.load import load_chat_template
from quire.text.template_pool import TemplatePool

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def line(custom_id: str, url: str, **body: Any) -> bytes:
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode()


@pytest.fixture
def template(tiny_chat: Path, engine: Engine, template_pool: TemplatePool) -> Callable[[], ChatTemplate]:
    assert engine.tokenizer is not None
    tokenizer = engine.tokenizer
    return lambda: load_chat_template(tiny_chat, tokenizer, template_pool)


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, engine: Engine, template: Callable[[], ChatTemplate]) -> Run:
    def run(*lines: bytes, steps: int | None = None) -> dict[str, Any]:
        with ResultFile(tmp_path / "out.jsonl") as results:
            runner = BatchRunner(engine, template, results, ("tiny", "tiny-chat"), ParserConfig())
            for number, _ in enumerate(runner.run(read_lines(lines)), start=1):
                if number == steps:
                    break
        text = (tmp_path / "out.jsonl").read_text()
        entries = [json.loads(entry) for entry in text.splitlines()]
        found = {entry["custom_id"]: entry for entry in entries}
        assert len(found) == len(entries)
        return found

    return run


def body_of(entry: dict[str, Any], status: int = 200) -> dict[str, Any]:
    assert entry["error"] is None
    assert entry["response"]["status_code"] == status
    body: dict[str, Any] = entry["response"]["body"]
    return body


def test_completions_are_what_the_engine_says(run: Run, engine: Engine) -> None:
    found = run(
        line("one", COMPLETIONS, prompt="the quick", max_tokens=8, temperature=0),
        line("two", COMPLETIONS, prompt=["the quick", "a story"], max_tokens=8, temperature=0, n=2, logprobs=2),
    )
    one, two = body_of(found["one"]), body_of(found["two"])
    engine.add("the quick", SamplingParams(max_tokens=8, temperature=0))
    expected = next(output for _ in range(20) if engine.has_work for output in engine.step())
    assert one["choices"][0]["text"] == expected.outputs[0].text
    assert one["usage"]["prompt_tokens"] == len(expected.prompt_token_ids)
    assert (one["object"], one["model"]) == ("text_completion", "tiny")
    assert [choice["index"] for choice in two["choices"]] == [0, 1, 2, 3]
    assert two["choices"][0]["text"] == two["choices"][1]["text"] == one["choices"][0]["text"]
    logprobs = two["choices"][0]["logprobs"]
    written = two["usage"]["completion_tokens"] // 4
    assert {len(values) for values in logprobs.values()} == {written}
    assert logprobs["text_offset"][0] == 0


def test_a_gap_is_filled(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = engine.tokenizer
    assert tokenizer is not None
    asked = {"prompt": "the quick", "suffix": " story", "max_tokens": 8, "temperature": 0}
    before = run(line("none", COMPLETIONS, **asked))["none"]
    assert "no tokens for filling gaps" in body_of(before, 400)["error"]["message"]
    markers = [tokenizer.id_to_token(token) or "" for token in (5, 6, 7)]
    monkeypatch.setattr("quire.text.fill_in_middle._MARKERS", (markers,))
    one = body_of(run(line("one", COMPLETIONS, **asked, return_token_ids=True))["one"])
    texts = [tokenizer.encode(text, add_special_tokens=False) for text in ("the quick", " story")]
    prompt = [5, *texts[0], 6, *texts[1], 7]
    assert one["choices"][0]["prompt_token_ids"][-len(prompt) :] == prompt
    engine.add(one["choices"][0]["prompt_token_ids"], SamplingParams(max_tokens=8, temperature=0))
    expected = next(output for _ in range(20) if engine.has_work for output in engine.step())
    assert one["choices"][0]["text"] == expected.outputs[0].text


def test_chats_are_rendered_and_answered(run: Run) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    found = run(
        line("a", CHAT, model="tiny-chat", messages=messages, max_tokens=4, temperature=0),
        line("b", CHAT, messages=messages, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3),
    )
    a, b = body_of(found["a"]), body_of(found["b"])
    assert a["object"] == "chat.completion"
    assert a["choices"][0]["message"] == b["choices"][0]["message"]
    assert a["choices"][0]["message"]["role"] == "assistant"
    assert a["choices"][0]["logprobs"] is None
    for position in b["choices"][0]["logprobs"]["content"]:
        top = position["top_logprobs"]
        assert len(top) == 3
        assert top[0]["logprob"] == position["logprob"]  # greedy takes the most likely
        assert bytes(top[0]["bytes"]).decode(errors="replace") == top[0]["token"]


def test_what_changes_nothing_is_logged_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "quire.protocol.ignored"):
        found = run(*(line(name, COMPLETIONS, prompt="the quick", max_tokens=2, frobnicate=1) for name in "ab"))
    assert [body_of(found[name])["object"] for name in "ab"] == ["text_completion"] * 2
    (told,) = [record.getMessage() for record in caplog.records if "frobnicate" in record.getMessage()]
    assert "changes no answer" in told


def test_what_is_refused_stops_nothing(run: Run) -> None:
    found = run(
        line("suffix", COMPLETIONS, prompt="x", suffix="y"),
        line("long", COMPLETIONS, prompt="x y " * 400),
        line("half", COMPLETIONS, prompt=["x", [10**6]]),
        line("stream", COMPLETIONS, prompt="x", stream=True),
        line("model", COMPLETIONS, prompt="x", model="gpt"),
        line("empty", COMPLETIONS, prompt=""),
        line("grammar", COMPLETIONS, prompt="x", guided_regex="("),
        b"nonsense",
        line("good", COMPLETIONS, prompt="the quick", max_tokens=2),
    )
    assert body_of(found["suffix"], 400)["error"]["param"] == "suffix"
    assert "the context holds 256" in body_of(found["long"], 400)["error"]["message"]
    assert body_of(found["half"], 400)["error"]["param"] == "prompt"
    assert body_of(found["stream"], 400)["error"]["param"] == "stream"
    assert body_of(found["model"], 404)["error"]["param"] == "model"
    assert body_of(found["empty"], 400)["error"]["param"] == "prompt"
    assert body_of(found["grammar"], 400)["error"]["param"] == "guided_regex"
    assert found[None]["error"]["line"] == 8  # type: ignore[index]
    assert len(body_of(found["good"])["choices"]) == 1


def test_requests_run_together_and_more_than_a_step_holds(run: Run, engine: Engine) -> None:
    number = 3 * engine.resolved.limits.max_num_seqs
    found = run(*(line(str(each), COMPLETIONS, prompt="the quick", max_tokens=3) for each in range(number)))
    assert all(body_of(entry) for entry in found.values())
    assert len(found) == number


def test_a_stopped_batch_goes_on(run: Run, engine: Engine) -> None:
    lines = [line(str(each), COMPLETIONS, prompt="the quick", max_tokens=each + 1) for each in range(8)]
    part = run(*lines, steps=4)
    assert 0 < len(part) < 8
    for number in range(100):  # a new process would have a new engine; this one is made to forget
        engine.abort(str(number))
    while engine.has_work:
        engine.step()
    whole = run(*lines)
    assert set(whole) == {str(each) for each in range(8)}
    assert all(whole[name]["id"] == part[name]["id"] for name in part)
    assert run(*lines) == whole


def test_tools_and_thinking(tmp_path: Path, engine: Engine, template_pool: TemplatePool) -> None:
    assert engine.tokenizer is not None
    source = Path(__file__).parents[1] / "protocol" / "parsers" / "short.jinja"
    template = load_chat_template(tmp_path, engine.tokenizer, template_pool, file=source)
    tools = [{"type": "function", "function": {"name": "now"}}]
    asked = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools, "temperature": 0, "max_tokens": 120}
    lines = [
        line("called", CHAT, **asked, tool_choice="required", parallel_tool_calls=False, thinking_token_budget=2),
        line("hinted", CHAT, **asked, reasoning_effort="low"),
    ]
    with ResultFile(tmp_path / "out.jsonl") as results:
        runner = BatchRunner(engine, lambda: template, results, ("tiny",), ParserConfig())
        for _ in runner.run(read_lines(lines)):
            pass
        unread = BatchRunner(engine, lambda: template, results, ("tiny",), ParserConfig(tool_parser="none"))
        for _ in unread.run(read_lines([line("unread", CHAT, **asked)])):
            pass
    entries = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    found = {entry["custom_id"]: entry for entry in entries}
    choice = body_of(found["called"])["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}
    assert choice["finish_reason"] == "tool_calls"
    assert body_of(found["hinted"])["choices"]
    assert body_of(found["unread"], 400)["error"]["param"] == "tools"
