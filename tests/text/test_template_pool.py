"""No template can keep the server busy: the process that renders it is ended, and another takes over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from quire.core.errors import ConfigError, InvalidRequest, Unavailable
from quire.text.chat_template import ChatTemplate
from quire.text.template_pool import SIZE, TemplateFailed, TemplateLimits, TemplatePool

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
def pool() -> Iterator[TemplatePool]:
    pool = TemplatePool(LIMITS)
    yield pool
    pool.close()


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_in_time(source: str, pool: TemplatePool) -> None:
    template = ChatTemplate({"default": source}, {}, pool, source="test")
    start = time.monotonic()
    with pytest.raises(InvalidRequest, match="costs too much"):
        template.render(USER)
    assert time.monotonic() - start < 30  # of wall clock, on a machine that may be busy
    assert pool.render("{{ messages[0].content }}", {"messages": USER}) == "Hi"


@pytest.mark.parametrize("source", COMPILE_BOMBS.values(), ids=COMPILE_BOMBS)
def test_bombs_that_go_off_while_compiling_are_refused(source: str, pool: TemplatePool) -> None:
    with pytest.raises(ConfigError, match="does not compile"):
        ChatTemplate({"default": source}, {}, pool, source="test")


def test_time_is_said_to_be_the_reason(pool: TemplatePool) -> None:
    with pytest.raises(TemplateFailed, match=r"more than 0.3 seconds") as caught:
        pool.render(BOMBS["loops in loops"], {})
    assert caught.value.kind == "limit"


def test_time_is_counted_for_each_rendering(pool: TemplatePool) -> None:
    """Many honest renderings together may take longer than one may."""
    source = "{% for i in range(40000) %}{% set x = i * 2 %}{% endfor %}done"
    for _ in range(40):
        assert pool.render(source, {}) == "done"


def test_a_lost_process_is_replaced(pool: TemplatePool) -> None:
    assert pool.render("a", {}) == "a"
    child = pool._children._idle.queue[-1].process
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert pool.render("b", {}) == "b"


def test_without_an_interpreter_it_is_the_server_that_is_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(Unavailable, match="cannot start the process that renders chat templates"):
        TemplatePool().render("a text", {})


def test_more_threads_than_processes_take_turns(pool: TemplatePool) -> None:
    with ThreadPoolExecutor(2 * SIZE) as threads:
        texts = threads.map(lambda number: pool.render("{{ x }}" * 100, {"x": number}), range(64))
        assert list(texts) == [str(number) * 100 for number in range(64)]


def test_a_slow_template_keeps_no_other_waiting() -> None:
    pool = TemplatePool(TemplateLimits(cpu_seconds=600))
    with ThreadPoolExecutor(1) as threads:
        first = pool._children._idle.queue[-1]
        slow = threads.submit(pool.render, BOMBS["loops in loops"], {})
        while first.process is None:
            time.sleep(0.001)
        assert pool.render("{{ x }}", {"x": "quick"}) == "quick"
        assert not slow.done()
        first.process.kill()
        with pytest.raises(TemplateFailed):
            slow.result()
    pool.close()


def test_one_thread_starts_one_process() -> None:
    pool = TemplatePool(LIMITS)
    for _ in range(3):
        pool.render("a", {})
    assert sum(child.process is not None for child in pool._children._idle.queue) == 1
    pool.close()
    assert all(child.process is None for child in pool._children._idle.queue)


def test_a_large_conversation_goes_through() -> None:
    pool = TemplatePool()
    text = "漢" * 3_000_000
    assert pool.render("{{ x }}", {"x": text}) == text
    pool.close()


def test_half_characters_do_not_come_back(pool: TemplatePool) -> None:
    with pytest.raises(TemplateFailed, match="half a character"):
        pool.render(r"{{ '\ud83d' }}", {})


def test_closed_twice_and_used_again() -> None:
    pool = TemplatePool(LIMITS)
    pool.close()
    assert pool.render("a", {}) == "a"
    pool.close()
    pool.close()


def test_the_child_ends_with_its_parent() -> None:
    """Also when the parent is killed, because its end of the pipe is closed then."""
    code = (
        "from quire.text.template_pool import TemplatePool\n"
        "pool = TemplatePool(); pool.render('a', {})\n"
        "print(pool._children._idle.queue[-1].process.pid, flush=True); input()"
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
    pool = TemplatePool(LIMITS)
    pool.render("a", {})
    child = pool._children._idle.queue[-1].process
    assert child is not None
    with open(f"/proc/{child.pid}/environ", "rb") as file:
        assert b"secret" not in file.read()
    pool.close()
