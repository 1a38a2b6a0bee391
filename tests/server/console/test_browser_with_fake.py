"""The console with answers that only a scripted server gives at will: errors, keys, a huge pool, hostile text."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.server.console.conftest import Watch
from tests.server.console.fake_server import ANSWER, BROKEN, ENDLESS, MODEL, Script
from tests.server.console.test_browser import ask, open_console


def test_stopping_hangs_up(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    ask(page, ENDLESS)
    expect(page.locator(".answer .text")).to_contain_text("2")
    assert not script.left.is_set()
    page.get_by_role("button", name="Stop").click()
    assert script.left.wait(timeout=30)
    expect(page.locator(".answer .figures")).to_contain_text("about")


def test_settings_become_fields(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    page.locator("#settings summary").click()
    page.get_by_label("System prompt").fill("Be brief.")
    for name, value in (("Temperature", "0.7"), ("Top k", "40"), ("Max tokens", "64"), ("Seed", "7")):
        page.get_by_label(name).fill(value)
    page.get_by_label("Stop strings").fill("END\n\\n\\n")
    page.get_by_label("Model").select_option("fake/adapter")
    ask(page, "Hello")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    assert script.bodies == [
        {
            "model": "fake/adapter",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
            "temperature": 0.7,
            "top_k": 40,
            "max_tokens": 64,
            "seed": 7,
            "stop": ["END", "\n\n"],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


def test_empty_settings_are_not_sent(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    ask(page, "Hello")
    ask(page, "again, while it is busy")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    (body,) = script.bodies
    assert set(body) == {"model", "messages", "stream", "stream_options"}
    page.keyboard.press("Enter")
    expect(page.locator(".answer .figures").nth(1)).to_contain_text("tokens/s")
    assert [message["role"] for message in script.bodies[1]["messages"]] == ["user", "assistant", "user"]
    assert script.bodies[1]["messages"][1]["content"].strip() == ANSWER


def test_wrong_setting_is_shown_and_nothing_is_sent(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    page.locator("#settings summary").click()
    page.get_by_label("Temperature").fill("-1")
    page.locator("#settings summary").click()
    ask(page, "Hello")
    expect(page.get_by_label("Temperature")).to_be_focused()
    assert script.bodies == []


def test_markdown_is_laid_out_and_html_stays_text(page: Page, watch: Watch) -> None:
    open_console(page)
    ask(page, "Hello")
    answer = page.locator(".answer .text")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    expect(answer.locator("strong")).to_have_text("table of contents")
    expect(answer.locator("ol > li")).to_have_count(3)
    expect(answer.locator("ol ul li")).to_have_text("Shared pages are lent, not copied.")
    expect(answer.locator("figure.code figcaption")).to_have_text("python")
    expect(answer.locator("pre code")).to_contain_text("    return table[")
    expect(answer).to_contain_text("<b>under four percent</b>")
    expect(answer.locator("b")).to_have_count(0)


def test_error_is_shown_with_its_request_id(page: Page, watch: Watch) -> None:
    watch.expected = "400"
    open_console(page)
    ask(page, BROKEN)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("'temperature' is 9; it must be from 0 to 2.")
    expect(alert).to_contain_text("req-4f1c")
    page.reload()
    expect(alert).to_contain_text("req-4f1c")


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_key_is_asked_for_once_and_kept_for_the_tab(page: Page, watch: Watch, script: Script, path: str) -> None:
    watch.expected = "401"
    script.key = "sk-secret"
    loaded = page.locator("#model option, .operation").first
    page.goto(path)
    expect(page.get_by_role("dialog")).to_contain_text("asks for a key")
    page.get_by_label("Key", exact=True).fill("sk-wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("does not know this key")
    page.get_by_label("Key", exact=True).fill("sk-secret")
    page.keyboard.press("Enter")
    expect(loaded).to_be_attached()
    expect(page.get_by_role("dialog")).to_have_count(0)
    watch.expected = ""
    page.reload()
    expect(loaded).to_be_attached()
    assert page.evaluate("localStorage.length") == 0


def test_refused_key_dialog_leaves_the_page_alone(page: Page, watch: Watch, script: Script) -> None:
    watch.expected = "401"
    script.key = "sk-secret"
    page.goto("/")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#status-text")).to_have_text("Needs a key")
    ask(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("needs an API key")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("num_blocks", [0, 1, 1000, 250_000])
def test_block_map_counts_every_block(page: Page, watch: Watch, script: Script, num_blocks: int) -> None:
    script.num_blocks, script.replicas = num_blocks, 2
    open_console(page)
    expect(page.locator("#blocks canvas")).to_have_count(2)
    expect(page.locator("#blocks-aside")).to_contain_text(f"{2 * num_blocks:,} blocks of 16 tokens")
    values = page.locator("#blocks-legend .value").all_inner_texts()
    assert sum(int(value.replace(",", "")) for value in values) == 2 * num_blocks
    assert page.locator("#blocks canvas").first.evaluate("(canvas) => canvas.clientHeight") <= 168


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"draining": True, "ready": False}, "Draining"),
        ({"ready": False}, "Starting"),
        ({"engines": [{"replica": 0, "state": "lost", "pid": 7, "restarts": 1}]}, "Replacing an engine"),
    ],
)
def test_state_of_the_server_is_told(
    page: Page, watch: Watch, script: Script, overrides: dict[str, Any], text: str
) -> None:
    script.overrides = overrides
    page.goto("/")
    expect(page.locator("#status-text")).to_have_text(text)


def test_nothing_known_yet_is_a_dash(page: Page, watch: Watch, script: Script) -> None:
    none = dict.fromkeys(("ttft_p50", "ttft_p95", "itl_p50", "itl_p95"))
    script.overrides = {"latency": none, "requests": [], "running": 0, "waiting": 0}
    open_console(page)
    chart = page.locator(".chart", has_text="Time to first token")
    expect(chart.locator(".value").first).to_have_text("–")
    expect(chart.get_by_role("img")).to_have_attribute("aria-label", re.compile("nothing yet"))
    expect(page.locator("#requests")).to_have_class(re.compile("empty"))


def test_long_answer_is_followed_until_the_reader_scrolls_back(page: Page, watch: Watch) -> None:
    page.set_viewport_size({"width": 1280, "height": 420})
    gap = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight"
    open_console(page)
    ask(page, "Hello")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    messages = page.locator("#messages")
    assert messages.evaluate(gap) < 2
    page.set_viewport_size({"width": 800, "height": 380})
    page.wait_for_function(f"() => ({gap})(document.getElementById('messages')) < 2")
    ask(page, ENDLESS)
    expect(page.locator(".answer .text").nth(1)).to_contain_text("20")
    messages.hover()
    for _ in range(20):  # as a reader would: until it is where it should be
        page.mouse.wheel(0, -2000)
        page.wait_for_timeout(100)
        if messages.evaluate("(box) => box.scrollTop") == 0:
            break
    expect(page.locator(".answer .text").nth(1)).to_contain_text("90")
    assert messages.evaluate("(box) => box.scrollTop") == 0
    page.keyboard.press("Escape")


def test_server_that_goes_away_and_comes_back_is_noticed(page: Page, watch: Watch) -> None:
    open_console(page)
    watch.expected = "Failed to load resource"
    page.context.set_offline(True)
    expect(page.locator("#status-text")).to_have_text("Not reachable")
    page.context.set_offline(False)
    expect(page.locator("#status-text")).to_have_text("Ready")


def test_reference_shows_fields_bounds_and_streams(page: Page, watch: Watch, script: Script) -> None:
    page.goto("/docs")
    operation = page.locator("#post-v1-chat-completions")
    expect(operation).to_contain_text("array of object")
    expect(operation).to_contain_text("1 to 4,096 items")
    expect(operation).to_contain_text("string or array of string")
    operation.get_by_text("Try it").click()
    operation.get_by_role("button", name="Send").click()
    expect(operation.locator(".answer-body")).to_contain_text("[DONE]")
    assert script.bodies == [{"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}]
