"""The console in a real browser: every check with scripted answers, and again with a real server and its model."""

import pytest
from playwright.sync_api import Page, expect

from tests.server.console.conftest import Watch
from tests.server.console.fake_server import ENDLESS

RECORD_LENGTHS = """() => {
    window.lengths = [];
    const answer = document.querySelector(".answer .text");
    const look = () => window.lengths.push(answer.textContent.length);
    new MutationObserver(look).observe(answer, {childList: true, subtree: true, characterData: true});
}"""
PICTURE = """() => [...document.querySelectorAll("#blocks canvas")].map((canvas) => canvas.toDataURL()).join()"""
ALWAYS_KNOWN = ("Tokens written", "Tokens read", "Requests", "KV cache")
"""Charts that have a line before anything was asked."""
LINES = """(titles) => [...document.querySelectorAll(".chart")]
    .filter((chart) => titles.includes(chart.querySelector("figcaption").textContent))
    .map((chart) => chart.querySelector(".line-0").getAttribute("d"))"""


@pytest.fixture(params=["fake", "live"])
def base_url(request: pytest.FixtureRequest) -> str:
    if request.param == "fake":
        return str(request.getfixturevalue("fake_url"))
    return str(request.getfixturevalue("live_server").url)


def open_console(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#status-text")).to_have_text("Ready")
    expect(page.locator("#model option")).not_to_have_count(0)


def limit_answers(page: Page) -> None:
    """Short answers where a test waits for their end: the model may be a real one."""
    page.locator("#settings summary").click()
    page.get_by_label("Max tokens").fill("40")
    page.locator("#settings summary").click()


def take_the_likeliest(page: Page) -> None:
    """What a real model says is then the same each time, and as long."""
    page.locator("#settings summary").click()
    page.get_by_label("Temperature").fill("0")
    page.locator("#settings summary").click()


def ask(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def test_answer_streams(page: Page, watch: Watch) -> None:
    open_console(page)
    limit_answers(page)
    ask(page, "How does paged memory work?")
    page.wait_for_selector(".answer .text")
    page.evaluate(RECORD_LENGTHS)
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    expect(page.locator(".answer .figures")).to_contain_text("first after")
    lengths = page.evaluate("window.lengths")
    assert lengths == sorted(lengths)
    assert len(set(lengths)) >= 3, "the text came at once"
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator("#announcer")).not_to_be_empty()


def test_answer_can_be_stopped_and_asked_for_again(page: Page, watch: Watch) -> None:
    open_console(page)
    take_the_likeliest(page)
    ask(page, ENDLESS)
    expect(page.locator(".answer .text")).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".answer .figures")).to_contain_text("stopped")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".answer.growing .text")).not_to_be_empty()
    page.keyboard.press("Escape")
    expect(page.locator(".answer .figures")).to_contain_text("stopped")
    expect(page.locator(".turn")).to_have_count(2)


def test_conversation_survives_a_reload_and_is_cleared(page: Page, watch: Watch) -> None:
    open_console(page)
    limit_answers(page)
    ask(page, "How does paged memory work?")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    before = page.locator(".messages").inner_text()
    page.reload()
    expect(page.locator("#status-text")).to_have_text("Ready")
    assert page.locator(".messages").inner_text() == before
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.get_by_text("A blank page.")).to_be_visible()


def test_charts_and_block_map_move(page: Page, watch: Watch) -> None:
    open_console(page)
    take_the_likeliest(page)
    expect(page.locator("#blocks canvas")).not_to_have_count(0)
    lines, picture = page.evaluate(LINES, ALWAYS_KNOWN), page.evaluate(PICTURE)
    assert len(lines) == len(ALWAYS_KNOWN)
    assert all(lines)
    ask(page, ENDLESS)
    moved = f"([titles, before]) => ({LINES})(titles).every((line, index) => line !== before[index])"
    page.wait_for_function(moved, arg=[ALWAYS_KNOWN, lines])
    page.wait_for_function(f"(before) => ({PICTURE})() !== before", arg=picture)
    page.keyboard.press("Escape")
    labels = page.eval_on_selector_all("#charts .plot svg", "(all) => all.map((one) => one.getAttribute('aria-label'))")
    assert len(labels) == 6
    assert all("now" in label or "nothing yet" in label for label in labels)
    assert "free" in (page.locator("#blocks canvas").first.get_attribute("aria-label") or "")


def test_running_requests_are_shown_with_their_progress(page: Page, watch: Watch) -> None:
    open_console(page)
    take_the_likeliest(page)
    row = page.locator("#requests li").first
    for attempt in range(20):
        ask(page, ENDLESS)
        try:  # a real model may have said all it had to say before the page looks
            expect(row.get_by_role("progressbar")).to_be_visible(timeout=5_000)
            break
        except AssertionError:
            assert attempt < 19
    expect(row).to_contain_text("/v1/")
    page.keyboard.press("Escape")
    expect(page.locator("#engines tr").first).to_contain_text("ready")


def test_everything_is_reached_by_keyboard(page: Page, watch: Watch) -> None:
    open_console(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the message field")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.type("One line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and another")
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#settings summary")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("System prompt")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Temperature")).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus cannot be seen"
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator(".question .text")).to_have_text("One line\nand another")


def test_theme_follows_the_system_until_it_is_chosen(page: Page, watch: Watch) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    open_console(page)
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    button = page.get_by_role("button", name="Dark theme")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    assert page.evaluate(ground) == light
    page.reload()
    assert page.evaluate(ground) == light
    expect(button).to_have_attribute("aria-pressed", "false")


def test_narrow_page_does_not_scroll_sideways(page: Page, watch: Watch) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    open_console(page)
    limit_answers(page)
    ask(page, "How does paged memory work?")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_controls_have_names(page: Page, watch: Watch) -> None:
    open_console(page)
    page.locator("#settings summary").click()
    for control in page.locator("button:visible, input:visible, select:visible, textarea:visible").all():
        name = control.evaluate(
            "(node) => node.ariaLabel || node.labels?.[0]?.textContent.trim() || node.textContent.trim()"
        )
        assert name, control.evaluate("(node) => node.outerHTML")
    for landmark in ("banner", "main", "navigation"):
        expect(page.get_by_role(landmark)).to_have_count(1)  # type: ignore[arg-type]


def test_browser_itself_refuses_html_in_strings(page: Page, watch: Watch) -> None:
    watch.expected = "TrustedHTML"
    open_console(page)
    refused = """() => {
        try { document.body.innerHTML = "<p>text</p>"; } catch (error) { return error.name; }
    }"""
    assert page.evaluate(refused) == "TypeError"


def test_reference_lists_the_operations_and_tries_them(page: Page, watch: Watch) -> None:
    page.goto("/docs")
    operation = page.locator("#get-v1-models")
    expect(operation.locator("h3")).to_contain_text("/v1/models")
    expect(page.locator(".contents a").first).to_be_visible()
    operation.get_by_text("Try it").click()
    operation.get_by_role("button", name="Send").click()
    expect(operation.get_by_role("status")).to_contain_text("200")
    expect(operation.locator(".answer-body")).to_contain_text('"data"')
