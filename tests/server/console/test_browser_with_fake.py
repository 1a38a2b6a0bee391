"""The console with answers that only a scripted server gives at will: errors, keys, a huge pool, hostile text."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.server.console.conftest import Watch
from tests.server.console.fake_server import ANSWER, BROKEN, CALLING, ENDLESS, MODEL, THINKING, Script, stats_at
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
    expect(answer.locator("figure.code figcaption span")).to_have_text("python")
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


def test_load_of_experts_is_drawn_layer_by_layer(page: Page, watch: Watch, script: Script) -> None:
    script.num_experts = 64
    open_console(page)
    picture = page.locator("#experts canvas")
    expect(picture).to_have_count(1)
    expect(page.locator("#experts-aside")).to_contain_text("2.5 × an average one")
    assert "4 layers of 64 experts" in (picture.get_attribute("aria-label") or "")
    picture.hover(position={"x": 1, "y": 1})
    expect(page.locator("#experts figcaption")).to_have_text("Layer 1, expert 0: 2.5 × the tokens of an average expert")


def test_a_model_without_experts_is_asked_about_them_once(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    expect(page.locator("#experts-section")).to_be_hidden()
    polls = script.polls
    page.wait_for_function("() => document.querySelectorAll('#blocks canvas').length > 0")
    page.wait_for_timeout(1500)
    assert script.polls > polls
    assert script.asked_for_experts == 1


def test_parts_that_the_server_does_not_have_are_not_shown(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    polls = script.polls
    expect(page.locator("#speculation-section")).to_be_hidden()
    expect(page.locator("#adapters-section")).to_be_hidden()
    page.wait_for_timeout(1500)
    assert script.polls > polls
    assert script.asked_for_adapters == 0


def test_speculation_is_shown_over_time(page: Page, watch: Watch, script: Script) -> None:
    script.drafts = True
    open_console(page)
    section = page.get_by_role("region", name="Speculation")
    expect(section.locator(".aside")).to_have_text("ngram · 75 % of 12,000 drafted tokens accepted")
    titles = ["Drafts verified", "Drafted tokens", "Accepted share", "Mean accepted length"]
    assert section.locator("figcaption").all_inner_texts() == titles
    share = section.locator(".chart", has_text="Accepted share").get_by_role("img")
    expect(share).to_have_attribute("aria-label", re.compile("between 66.7 % and 66.7 %"))
    length = section.locator(".chart", has_text="Mean accepted length").get_by_role("img")
    expect(length).to_have_attribute("aria-label", re.compile("between 2 and 2"))
    for chart in section.locator(".chart").all():
        drawn = chart.evaluate(BOUNDS)
        assert drawn["count"] > 150
        assert drawn["highest"] > 60
    expect(page.locator("#adapters-section")).to_be_hidden()
    script.overrides = {"speculation": None}
    expect(section).to_be_hidden()


def test_adapters_are_counted_and_named(page: Page, watch: Watch, script: Script) -> None:
    script.adapters, script.replicas = 3, 2
    open_console(page)
    section = page.get_by_role("region", name="LoRA adapters")
    figures = section.locator("dl")
    expect(figures).to_contain_text("41,207")
    assert figures.locator("dt").all_inner_texts()[:2] == ["on the device", "in host memory"]
    assert figures.locator("dd").all_inner_texts()[1] == "40"
    rows = section.locator("tbody tr")
    expect(rows).to_have_count(6)
    name = "customer-0000-answers-in-the-tone-of-the-house"
    assert rows.nth(0).locator("th, td").all_inner_texts() == [name, "device, replica 0", "2", "0"]
    assert rows.nth(4).locator("td").all_inner_texts() == ["host memory, replica 1", "0", "1"]
    expect(section.locator(".aside")).to_contain_text("14 more are not shown")
    for chart in section.locator(".chart").all():
        assert chart.evaluate(BOUNDS)["count"] > 150
    script.adapters = 1
    expect(rows).to_have_count(2)
    script.adapters = 0
    expect(section.locator(".aside")).to_have_text("none was asked for yet")
    expect(section.locator("table")).to_be_hidden()


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"draining": True, "ready": False}, "Draining"),
        ({"ready": False}, "Starting"),
        ({"engines": [{"replica": 0, "state": "starting", "pid": 7, "restarts": 1}]}, "Restarting"),
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
    script.seconds = 0
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


BOUNDS = """(chart) => {
    const numbers = (point) => point.split(",").map(Number);
    const pointsOf = (line) => line.getAttribute("d").match(/[\\d.]+,[\\d.]+/g).map(numbers);
    const [points, ...others] = [...chart.querySelectorAll(".line")].map(pointsOf);
    const highest = 100 - Math.min(...[points, ...others].flat().map(([, y]) => y));
    return { left: points[0][0], right: points.at(-1)[0], count: points.length, highest };
}"""


@pytest.mark.parametrize("seconds", [170, 900])
def test_charts_are_full_at_every_load_and_fill_their_height(
    page: Page, watch: Watch, script: Script, seconds: int
) -> None:
    script.seconds = seconds
    open_console(page)
    for visit in (1, 2):
        charts = page.locator(".chart:visible")
        expect(charts).to_have_count(6)
        for chart in charts.all():
            drawn = chart.evaluate(BOUNDS)
            assert drawn["left"] < 300 * (180 - min(seconds, 180) + 5) / 180
            assert drawn["right"] > 295
            assert drawn["count"] > 150
            assert drawn["highest"] > 60, "the axis does not fit the data"
        assert script.histories == visit
        page.reload()
        expect(page.locator("#status-text")).to_have_text("Ready")


def test_a_longer_time_can_be_shown(page: Page, watch: Watch, script: Script) -> None:
    script.seconds = 900
    open_console(page)
    chart = page.locator(".chart").first
    assert chart.evaluate(BOUNDS)["count"] < 200
    page.get_by_label("Time shown").select_option("last 15 minutes")
    assert chart.evaluate(BOUNDS)["count"] > 800
    expect(chart).to_contain_text("15 min ago")
    expect(chart.get_by_role("img")).to_have_attribute("aria-label", re.compile("over 15 min"))


CELLS = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const found = {};
    for (let at = 0; at < data.length; at += 4) {
        if (!data[at + 3]) continue;
        const colour = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
        found[colour] = (found[colour] ?? 0) + 1;
    }
    return found;
}"""


@pytest.mark.parametrize(("num_blocks", "used"), [(640, 40), (34_000, 40), (34_000, 30_000)])
def test_touched_blocks_are_seen_in_the_colours_of_their_requests(
    page: Page, watch: Watch, script: Script, num_blocks: int, used: int
) -> None:
    script.num_blocks, script.used = num_blocks, used
    open_console(page)
    canvas = page.locator("#blocks canvas")
    expect(page.locator("#blocks-legend .value").last).to_have_text(f"{used - used // 6:,}")
    cells = canvas.evaluate(CELLS)
    side = (canvas.bounding_box() or {})["width"]
    assert side > 300
    for place in (0, 1):
        swatch = page.locator(f"#requests .request-{place}")
        expect(swatch).to_have_count(1)
        colour = swatch.evaluate("(node) => getComputedStyle(node).backgroundColor")
        assert cells.get(colour, 0) >= 16 * 16, f"request {place} cannot be seen among {num_blocks} blocks"
    canvas.hover(position={"x": 50, "y": 3})
    expect(page.locator(".block-map figcaption")).to_contain_text(re.compile("^Blocks? .*(used|shared)"))
    if num_blocks > 100 * used:
        page.mouse.move(0, 0)
        expect(page.locator(".block-map figcaption")).to_contain_text("of 34,000 blocks; the rest is free")


def test_banner_is_shown_while_an_engine_is_replaced(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    banner = page.locator("#banner")
    expect(banner).to_be_hidden()
    ask(page, ENDLESS)
    script.overrides = {"engines": [{"replica": 0, "state": "starting", "pid": 7, "restarts": 1}]}
    expect(banner).to_have_text("The engine is restarting. Your answer continues when it is back.")
    script.overrides = {}
    expect(banner).to_be_hidden(timeout=20_000)
    page.keyboard.press("Escape")


def test_code_is_copied_with_a_button(page: Page, watch: Watch) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_console(page)
    ask(page, "Hello")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    button = page.get_by_role("button", name="Copy code")
    button.click()
    expect(button).to_have_text("Copied")
    code = ANSWER.split("```")[1].removeprefix("python\n").rstrip("\n")
    assert page.evaluate("navigator.clipboard.readText()") == code


def test_code_is_copied_where_the_browser_has_no_clipboard(page: Page, watch: Watch) -> None:
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined });")
    open_console(page)
    page.evaluate("document.addEventListener('copy', () => (window.copied = document.activeElement.value))")
    ask(page, "Hello")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    page.get_by_role("button", name="Copy code").click()
    assert "return table[" in page.evaluate("window.copied")


def test_thoughts_are_open_while_they_come_and_folded_after(page: Page, watch: Watch) -> None:
    open_console(page)
    ask(page, THINKING)
    thoughts = page.locator(".reasoning")
    expect(thoughts).to_have_attribute("open", "")
    expect(thoughts.locator("summary")).to_have_text("Thinking")
    expect(page.locator(".answer .figures")).to_contain_text("tokens")
    expect(thoughts).not_to_have_attribute("open", "")
    expect(thoughts.locator("summary")).to_have_text(re.compile("Thought for [\\d.]+ (ms|s)"))
    expect(thoughts.locator("p")).to_have_text("First, the <b>page table</b>. ")
    expect(page.locator(".answer .text")).to_have_text("It is a table.")
    page.reload()
    expect(thoughts.locator("summary")).to_contain_text("Thought for")


def test_calls_of_tools_are_shown_and_answered(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    page.locator("#settings summary").click()
    page.get_by_label("Tools").fill('[{"name": "get_weather"}, {"name": "get_time"}]')
    page.locator("#settings summary").click()
    ask(page, CALLING)
    expect(page.locator(".call")).to_have_count(2)
    expect(page.locator(".call").first).to_contain_text("Call of get_weather")
    expect(page.locator(".call pre").first).to_have_text('{\n  "city": "<i>Basel</i>"\n}')
    page.get_by_label("Result of get_weather").fill("rain")
    page.reload()
    page.get_by_label("Result of get_weather").fill("<u>sun</u>")
    page.get_by_label("Result of get_time").fill("noon")
    page.get_by_role("button", name="Send results").click()
    expect(page.locator(".turn.result")).to_have_count(2)
    expect(page.locator(".turn.result").first).to_contain_text("<u>sun</u>")
    expect(page.locator(".answer .figures").nth(1)).to_contain_text("tokens/s")
    first, second = script.bodies
    assert [tool["function"]["name"] for tool in first["tools"]] == ["get_weather", "get_time"]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool", "tool"]
    assert second["messages"][2] == {"role": "tool", "tool_call_id": "call_0", "content": "<u>sun</u>"}
    expect(page.get_by_role("button", name="Send results")).to_have_count(0)


CUT_OFF = """() => [...document.querySelectorAll("body *")]
    .filter((node) => node.checkVisibility() && !node.matches("textarea, select, .skip, .visually-hidden"))
    .filter((node) => getComputedStyle(node).display !== "inline" && !(node instanceof SVGElement))
    .filter((node) => node.scrollWidth > node.clientWidth + 1 || node.getBoundingClientRect().right > innerWidth + 1)
    .map((node) => node.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("message", ["Hello", CALLING])
def test_nothing_is_cut_off_on_a_phone(page: Page, watch: Watch, script: Script, message: str, width: int) -> None:
    script.drafts, script.adapters = True, 3
    page.set_viewport_size({"width": width, "height": 844})
    script.overrides = {"engines": [{**stats_at(9, script)["engines"][0], "state": "starting", "restarts": 12}]}
    page.goto("/")
    expect(page.locator("#status-text")).to_have_text("Restarting")
    ask(page, message)
    expect(page.locator(".answer .figures")).to_contain_text("token")
    expect(page.locator("#requests .request-0")).to_have_count(1)
    expect(page.locator("#adapters tr")).to_have_count(3)
    assert page.evaluate(CUT_OFF) == []
