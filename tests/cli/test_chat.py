"""`quire chat` through a pipe and in a terminal."""

import io
import json
import os
import pty
import select
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Self, cast

import pytest

from quire.cli.chat import _talk
from quire.cli.chat_session import ChatSession
from quire.cli.main import main
from quire.cli.terminal import Terminal

_PATIENCE = 120.0
"""Seconds to wait for a prompt that should have come; only a failure ever waits so long."""


def piped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, *options: str, code: int = 0
) -> tuple[str, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(["chat", "--max-tokens", "6", *options]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_one_message(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_tiny: list[str]) -> None:
    one, _ = piped(capsys, monkeypatch, "", "--message", "Hi", *run_tiny)
    same, _ = piped(capsys, monkeypatch, "Hi\n", *run_tiny)
    assert one == same
    assert one.endswith("\n")


def test_lines_are_one_conversation_until_it_is_cleared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_tiny: list[str], tmp_path: Path
) -> None:
    lines = f"Hi\n\nAnd then?\n/save {tmp_path / 'two.json'}\n/clear\nHi\n/save {tmp_path / 'one.json'}\n/exit\nnever\n"
    _, remarks = piped(capsys, monkeypatch, lines, "--system", "Be brief.", *run_tiny)
    two, one = (json.loads((tmp_path / f"{name}.json").read_text())["messages"] for name in ("two", "one"))
    assert [message["role"] for message in two] == ["system", "user", "assistant", "user", "assistant"]
    assert two[:3] == one
    assert [message["content"] for message in two if message["role"] == "user"] == ["Hi", "And then?"]
    assert "Wrote 4 messages" in remarks


def test_thinking_is_no_part_of_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_tiny: list[str], tmp_path: Path
) -> None:
    template, saved = tmp_path / "thinking.jinja", tmp_path / "talk.json"
    template.write_text("{{ messages[-1].content }}<think>{# ends with </think> #}")
    options = ["--chat-template", str(template), *run_tiny]
    thought, _ = piped(capsys, monkeypatch, f"Hi\n/save {saved}\n", *options)
    assert thought == "\n"
    assert json.loads(saved.read_text())["messages"][-1] == {"role": "assistant", "content": ""}
    said, _ = piped(capsys, monkeypatch, "Hi\n", "--reasoning-parser", "none", *options)
    assert said.strip()


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """An answer with every part, as a person's terminal gets it."""
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("quire.cli.terminal._without_echo", nullcontext)
    terminal = Terminal(interactive=True)
    with terminal.answering():
        terminal.think("Hm.")
        terminal.call("look", begins=True)
        terminal.call('{"at": 1}', begins=False)
        terminal.answer("Yes")
        terminal.answer(".")
    terminal.complain("(No.)")
    return capsys.readouterr().out


def test_parts_of_an_answer_are_told_apart_by_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    thought, call = "\033[2;3mHm.\033[0m", '\033[35m\n\n→ look \033[0m\033[35m{"at": 1}\033[0m'
    assert shown(capsys, monkeypatch) == f"{thought}{call}\n\nYes.\n\n\033[33m(No.)\033[0m\n"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    assert shown(capsys, monkeypatch, **environment) == 'Hm.\n\n→ look {"at": 1}\n\nYes.\n\n(No.)\n'


def test_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_tiny: list[str], tmp_path: Path
) -> None:
    save = tmp_path / "talk.json"
    settings = "/set temperature 0.7\n/set max-tokens none\n/set max-tokens 3\n/set stop ###\n"
    lines = f"/help\nHi\n{settings}/params\n/system You are Bo.\n/retry\n/save {save}\n"
    answers, remarks = piped(capsys, monkeypatch, lines, *run_tiny)
    assert "/retry" in remarks
    assert "temperature         0.7" in remarks
    assert "max_tokens          3" in remarks
    assert "stop                '###'" in remarks
    assert "written in" in remarks
    assert "/help" not in answers
    messages = json.loads(save.read_text())["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]


def test_retry_without_chance_takes_some(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_tiny: list[str]
) -> None:
    _, remarks = piped(capsys, monkeypatch, "Hi\n/retry\n", *run_tiny)
    assert "Another answer, with temperature 0.5" in remarks


def test_old_turns_are_forgotten_aloud(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_tiny: list[str]
) -> None:
    _, remarks = piped(capsys, monkeypatch, "one two three four five six\n" * 12, *run_tiny)
    assert "2 oldest messages are forgotten" in remarks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/foo\n", "there is no command /foo"),
        ("/hlep\n", "Did you mean '/help'?"),
        ("/exit now\n", "/exit takes no argument"),
        ("/set temperature\n", "/set needs a name and a value"),
        ("/set temperature hot\n", "temperature is 'hot', but it must be a number"),
        ("/set temperature -1\n", "temperature is -1.0"),
        ("/set top_k none\n", "top_k is 'none', but it must be a whole number"),
        ("/set heat 1\n", "there is no setting 'heat'"),
        ("/retry\n", "there is no message yet"),
        ("/save\n", "/save needs a file"),
        ("/save /none/there.json\n", "cannot write /none/there.json"),
        ("x y " * 400 + "\n", "the context holds 256"),
    ],
)
def test_a_mistake_in_a_pipe_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    run_tiny: list[str],
    text: str,
    expected: str,
) -> None:
    answers, error = piped(capsys, monkeypatch, text, *run_tiny, code=2)
    assert answers == ""
    assert error.count("\n") == 1
    assert expected in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--message", " "], "--message is empty"),
        (["--top-p", "2"], "top_p is 2.0"),
        (["smollm2", "hello"], "unexpected argument 'hello'"),
    ],
)
def test_bad_options_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    assert main(["chat", *arguments]) == 2
    assert expected in capsys.readouterr().err


class Person:
    """Sits at a terminal that runs `quire chat`."""

    def __init__(self, options: list[str], terminal: str = "dumb") -> None:
        self._end, other = pty.openpty()
        command = [sys.executable, "-m", "quire.cli.main", "chat", *options]
        environment = os.environ | {"TERM": terminal, "NO_COLOR": "", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment)
        os.close(other)
        self._seen = ""

    def enter(self, text: str) -> None:
        os.write(self._end, text.encode())

    def read_until(self, mark: str) -> str:
        """What appears up to and with `mark`."""
        while mark not in self._seen:
            ready, _, _ = select.select([self._end], [], [], _PATIENCE)
            assert ready, f"waited for {mark!r}, saw {self._seen!r}"
            self._seen += os.read(self._end, 4096).decode(errors="replace")
        shown, _, self._seen = self._seen.partition(mark)
        return shown

    def leave(self) -> int:
        return self.process.wait(_PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def test_in_a_terminal(run_tiny: list[str]) -> None:
    with Person(["--max-tokens", "8", *run_tiny]) as person:
        greeting = person.read_until(">>> ")
        assert "tiny-chat, with a context of 256 tokens. /help" in greeting
        person.enter("/help\n")
        assert "/save FILE" in person.read_until(">>> ")
        person.enter("Hello\n")
        assert "Hello" in person.read_until(">>> ")
        person.enter("/foo\n")
        assert "(There is no command /foo" in person.read_until(">>> ")
        person.enter("\x04")
        assert person.leave() == 0


def test_what_a_person_types_has_a_colour_that_ends_with_the_line(run_tiny: list[str]) -> None:
    with Person(["--max-tokens", "8", *run_tiny], terminal="xterm") as person:
        assert "\033[2mtiny-chat, with a context" in person.read_until(">>> ")
        person.enter("/foo\n")
        typed = person.read_until("(There is no command /foo")
        assert typed.startswith("\033[0m\033[36m/foo")
        assert typed.endswith("\033[0m\033[33m")
        person.read_until(">>> ")
        person.enter("\x04")
        assert person.leave() == 0


def test_ctrl_c_at_the_prompt_leaves_nobody_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter([KeyboardInterrupt, EOFError])

    def read(prompt: str) -> str:
        raise next(typed)

    monkeypatch.setattr("builtins.input", read)
    terminal = Terminal(interactive=True)
    _talk(cast(ChatSession, SimpleNamespace(terminal=terminal)))
    assert "Ctrl-D or /exit leaves" in capsys.readouterr().out
