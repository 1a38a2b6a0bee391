"""No template can keep the server busy: the process that renders it is ended, and another takes over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from quire.core.errors import ConfigError, InvalidRequest
from quire.text.chat_template import ChatTemplate
from quire.text.template_process import TemplateFailed, TemplateLimits, TemplateProcess

LIMITS = TemplateLimits(cpu_seconds=0.3, memory_bytes=300_000_000, most_characters=100_000, most_source=200_000)
USER = [{"role": "user", "content": "Hi"}]

BOMBS = {
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a long loop": "{% for i in range(10**9) %}{% endfor %}",
    "a long string": "{{ 'a' * 10**10 }}",
    "a wide format": "{{ '%999999999999d' % messages | length }}",
    "doubling": "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "sharing": "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
    "a large number": "{{ (messages | length + 8) ** (9 ** 9) }}",
    "recursion": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "much output": "{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaa' }}{% endfor %}",
    "replacing": "{% set s = 'a' * 99999 %}{{ s.replace('a', s) | length }}",
}
COMPILE_BOMBS = {
    "folded while compiling": "{{ 9 ** (9 ** 9) }}",
    "deep": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "too long": "a" * 200_001,
}


@pytest.fixture(scope="module")
def process() -> Iterator[TemplateProcess]:
    process = TemplateProcess(LIMITS)
    yield process
    process.close()


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_in_time(source: str, process: TemplateProcess) -> None:
    template = ChatTemplate({"default": source}, {}, process, source="test")
    start = time.monotonic()
    with pytest.raises(InvalidRequest, match="costs too much"):
        template.render(USER)
    assert time.monotonic() - start < 30  # of wall clock, on a machine that may be busy
    assert process.render("{{ messages[0].content }}", {"messages": USER}) == "Hi"


@pytest.mark.parametrize("source", COMPILE_BOMBS.values(), ids=COMPILE_BOMBS)
def test_bombs_that_go_off_while_compiling_are_refused(source: str, process: TemplateProcess) -> None:
    with pytest.raises(ConfigError, match="does not compile"):
        ChatTemplate({"default": source}, {}, process, source="test")


def test_time_is_said_to_be_the_reason(process: TemplateProcess) -> None:
    with pytest.raises(TemplateFailed, match=r"more than 0.3 seconds") as caught:
        process.render(BOMBS["loops in loops"], {})
    assert caught.value.kind == "limit"


def test_time_is_counted_for_each_rendering(process: TemplateProcess) -> None:
    """Many honest renderings together may take longer than one may."""
    source = "{% for i in range(40000) %}{% set x = i * 2 %}{% endfor %}done"
    for _ in range(40):
        assert process.render(source, {}) == "done"


def test_a_lost_process_is_replaced(process: TemplateProcess) -> None:
    assert process.render("a", {}) == "a"
    child = process._child.process
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert process.render("b", {}) == "b"


def test_threads_take_turns(process: TemplateProcess) -> None:
    with ThreadPoolExecutor(8) as pool:
        texts = pool.map(lambda number: process.render("{{ x }}" * 100, {"x": number}), range(64))
        assert list(texts) == [str(number) * 100 for number in range(64)]


def test_a_large_conversation_goes_through() -> None:
    process = TemplateProcess()
    text = "漢" * 3_000_000
    assert process.render("{{ x }}", {"x": text}) == text
    process.close()


def test_half_characters_do_not_come_back(process: TemplateProcess) -> None:
    with pytest.raises(TemplateFailed, match="half a character"):
        process.render(r"{{ '\ud83d' }}", {})


def test_closed_twice_and_used_again() -> None:
    process = TemplateProcess(LIMITS)
    process.close()
    assert process.render("a", {}) == "a"
    process.close()
    process.close()


def test_the_child_ends_with_its_parent() -> None:
    """Also when the parent is killed, because its end of the pipe is closed then."""
    code = (
        "from quire.text.template_process import TemplateProcess\n"
        "process = TemplateProcess(); process.render('a', {}); print(process._child.process.pid, flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    for _ in range(3000):
        if not _runs(child):
            return
        time.sleep(0.01)  # another process; there is nothing to wait on
    pytest.fail("the child is still there")


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_child_does_not_know_the_server_s_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_API_KEY", "secret")
    process = TemplateProcess(LIMITS)
    process.render("a", {})
    assert process._child.process is not None
    with open(f"/proc/{process._child.process.pid}/environ", "rb") as file:
        assert b"secret" not in file.read()
    process.close()
