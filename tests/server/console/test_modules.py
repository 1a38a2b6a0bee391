"""The console's modules one by one, in the browser: streams cut anywhere, text that tries to be HTML, odd numbers."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from quire.serving.block_runs import runs_of
from tests.server.console.conftest import Watch
from tests.server.console.fake_server import Script, fake_app, history_of, serving, stats_at

STREAM = """async (chunks) => {
    const { serverSentEvents } = await import("/console/stream.js");
    const bytes = chunks.map((chunk) => new Uint8Array(chunk));
    const body = new ReadableStream({ start(sink) { bytes.forEach((b) => sink.enqueue(b)); sink.close(); } });
    const found = [];
    for await (const data of serverSentEvents(body)) found.push(data);
    return found;
}"""
MARKDOWN = """async (texts) => {
    const { renderMarkdown } = await import("/console/markdown.js");
    const box = document.createElement("div");
    for (const text of texts) renderMarkdown(box, text);
    return box.innerHTML;
}"""


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:
    """A page that can import the modules; the reference does nothing more once it is there."""
    with serving(fake_app(Script())) as url:
        page = browser.new_page()
        watch = Watch(page, url)
        page.goto(f"{url}/docs")
        yield page
        page.close()
    assert watch.problems == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_they_are_cut(modules: Page, size: int) -> None:
    stream = (
        ': hello\n\ndata: {"a": "é"}\n\nevent: x\r\ndata:one\r\ndata: two\r\n\r\ndata: [DONE]\n\ndata: cut off'.encode()
    )
    chunks = [list(stream[at : at + size]) for at in range(0, len(stream), size)]
    assert modules.evaluate(STREAM, chunks) == ['{"a": "é"}', "one\ntwo", "[DONE]"]


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"),
        ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
        ("a **b** `c**d**` *e*", "<p>a <strong>b</strong> <code>c**d**</code> <em>e</em></p>"),
        ("2 * 3 * 4", "<p>2 * 3 * 4</p>"),
        ("**not closed", "<p>**not closed</p>"),
        ("# One\nTwo\n\nThree", "<h4>One</h4><p>Two</p><p>Three</p>"),
        (
            "Of these:\n- a\n- b\n  - c\n- d",
            "<p>Of these:</p><ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>",
        ),
        ("1. a\n\n2. b", '<ol start="1"><li>a</li></ol><ol start="2"><li>b</li></ol>'),
        ("- a\n      - b\n   - c", "<ul><li>a<ul><li>b</li><li>c</li></ul></li></ul>"),
        ("", ""),
    ],
)
def test_markdown(modules: Page, text: str, html: str) -> None:
    assert modules.evaluate(MARKDOWN, [text]) == html


def test_code_is_kept_to_the_letter_even_unclosed(modules: Page) -> None:
    html = modules.evaluate(MARKDOWN, ["```js\nif (a < b) {\n\n  **x**\n"])
    assert "<figcaption><span>js</span><button" in html
    assert "<code>if (a &lt; b) {\n\n  **x**\n</code>" in html


def test_growing_text_ends_as_if_it_came_at_once(modules: Page) -> None:
    text = "Intro:\n1. one\n2. two\n   - deep\n\n```py\nx = '**'\n```\n\n# End\n**done**"
    pieces = [text[:end] for end in range(len(text) + 1)]
    assert modules.evaluate(MARKDOWN, pieces) == modules.evaluate(MARKDOWN, [text])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("rate(0.4217)", "0.422"),
        ("rate(42.61)", "42.6"),
        ("rate(1204.4)", "1,204"),
        ("rate(null)", "–"),
        ("duration(0.0123)", "12.3 ms"),
        ("duration(1.5)", "1.5 s"),
        ("duration(0)", "0 ms"),
        ("age(59.9)", "59 s"),
        ("age(3600)", "1 h"),
        ("age(90061)", "1 d 1 h"),
        ("age(0.2)", "0 s"),
        ("share(0.3333)", "33.3 %"),
        ("bytes(0)", "0 B"),
        ("bytes(1536)", "1.5 KiB"),
        ("bytes(2 ** 50)", "1,024 TiB"),
        ("count(undefined)", "–"),
    ],
)
def test_numbers_are_written_for_people(modules: Page, call: str, text: str) -> None:
    assert modules.evaluate(f"async () => (await import('/console/format.js')).{call}") == text


@pytest.mark.parametrize(("tokens", "seconds", "rate"), [(101, 2, 50), (1, 2, None), (12, 0.001, None), (12, 0, None)])
def test_an_answer_that_came_all_at_once_has_no_speed(
    modules: Page, tokens: int, seconds: float, rate: float | None
) -> None:
    call = "async (given) => (await import('/console/completion.js')).tokensPerSecond(...given)"
    assert modules.evaluate(call, [tokens, seconds]) == rate


@pytest.mark.parametrize(("value", "bound"), [(0.9, 1), (1, 1), (1.1, 1.2), (2.1, 2.5), (51, 60), (0.0031, 0.004)])
def test_axes_end_at_round_numbers_just_above_the_data(modules: Page, value: float, bound: float) -> None:
    found = modules.evaluate("async (value) => (await import('/console/chart.js')).roundUp(value)", value)
    assert found == pytest.approx(bound)


@pytest.mark.parametrize("blocks", [1, 7, 500, 4096, 20_000, 100_000, 3_000_000])
@pytest.mark.parametrize("width", [328, 620, 1400])
def test_block_map_has_room_for_every_block(modules: Page, blocks: int, width: int) -> None:
    plan = modules.evaluate(
        "async ([blocks, width]) => (await import('/console/block_layout.js')).layout(blocks, width)", [blocks, width]
    )
    assert plan["columns"] * plan["rows"] * plan["perCell"] >= blocks
    assert plan["columns"] * plan["cell"] <= width
    assert plan["rows"] * plan["cell"] <= 168


@pytest.mark.parametrize(
    ("blocks", "touched", "shown"),
    [
        (640, 0, 640),
        (34_000, 0, 103 * 28),
        (34_000, 103 * 28, 103 * 28),
        (34_000, 103 * 28 + 1, 2 * 103 * 28),
        (34_000, 33_999, 34_000),
    ],
)
def test_of_a_large_pool_the_part_that_is_touched_is_shown(
    modules: Page, blocks: int, touched: int, shown: int
) -> None:
    call = "async (given) => (await import('/console/block_layout.js')).shownBlocks(...given)"
    assert modules.evaluate(call, [blocks, touched, 620]) == shown


@pytest.mark.parametrize("values", [[], [0], [2, 2, 4, 4, 4, 0], [4, 5, 4, 5, 1, 1, 0, 0, 3]])
def test_runs_are_read_as_engines_write_them(modules: Page, values: list[int]) -> None:
    call = "async ([runs, n]) => [...(await import('/console/block_layout.js')).expand(runs, n)]"
    assert modules.evaluate(call, [runs_of(values), len(values)]) == values


def test_requests_keep_their_colours_and_share_them_late(modules: Page) -> None:
    call = """async (steps) => {
        const { RequestColours } = await import("/console/request_colours.js");
        const colours = new RequestColours();
        return steps.map((ids) => { colours.keep(ids); return ids.map((id) => colours.of(id)); });
    }"""
    names = [f"r{number}" for number in range(12)]
    first, second, third = modules.evaluate(call, [names[:8], [*names[:7], "new"], names])
    assert sorted(first) == list(range(8))
    assert second == first, "the one that came got the colour of the one that went"
    assert third[:7] == first[:7]
    assert max(third.count(place) for place in third) == 2


HISTORY = """async ({ columns, stats, gap }) => {
    const { History } = await import("/console/history.js");
    const history = new History();
    const found = [history.isStale(0)];
    history.seed(columns, 10_000);
    found.push(history.isStale(10_000), history.samples.map(({ time, running }) => [time, running]));
    history.add(10_000 + gap, stats);
    found.push(history.samples.length, history.samples.at(-1));
    found.push(history.isStale(10_000 + gap), history.isStale(10_000 + 2 * gap));
    return found;
}"""


@pytest.mark.parametrize(("gap", "kept"), [(1000, 4), (950_000, 2)])
def test_history_goes_on_from_what_the_server_kept(modules: Page, gap: int, kept: int) -> None:
    stats = stats_at(1, Script(drafts=True, adapters=2))
    columns = {"age_seconds": [3.0, 2.0, 1.0], "running": [1, None, 3]}
    given = {"columns": columns, "stats": stats, "gap": gap}
    before, seeded, samples, length, last, now, later = modules.evaluate(HISTORY, given)
    assert (before, seeded, now, later) == (True, False, False, gap > 3000)
    assert samples == [[7000, 1], [8000, None], [9000, 3]]
    assert length == kept
    assert set(history_of(Script())) - {"age_seconds"} <= set(last), "charts read both by the same names"


def test_banner_tells_that_an_engine_is_replaced(modules: Page) -> None:
    call = """async (looks) => {
        const place = Object.assign(document.createElement("p"), { id: "banner" });
        document.body.append(place);
        const { Banner } = await import("/console/banner.js");
        const banner = new Banner();
        const told = looks.map(([now, engines]) => { banner.show(engines, now); return place.textContent; });
        place.remove();
        return told;
    }"""

    def engine(state: str, restarts: int, replica: int = 0) -> dict[str, object]:
        return {"state": state, "restarts": restarts, "replica": replica}

    told = modules.evaluate(
        call,
        [
            [0, [engine("starting", 0)]],
            [1000, [engine("ready", 2)]],
            [2000, [engine("starting", 3)]],
            [3000, [engine("ready", 3)]],
            [20_000, [engine("ready", 3)]],
            [21_000, [engine("ready", 4)]],
            [22_000, [engine("ready", 4), engine("starting", 1, 1)]],
            [23_000, [engine("lost", 9)]],
        ],
    )
    # what happened before the page looked is told as well: the first look may come late
    assert told[0] == ""
    assert "restarting. Your answer continues when it is back" in told[2]
    assert told[3] == "The engine was restarted. Your answer continues."
    assert told[4] == ""
    assert told[5] == "The engine was restarted. Your answer continues.", "it was replaced between two looks"
    assert told[6].startswith("Engine 1 is restarting. Your answer continues on another")
    assert "fails again and again" in told[7]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ('[{"name": "f"}]', ["f"]),
        ('[{"type": "function", "function": {"name": "g"}}]', ["g"]),
        ("[", None),
        ('{"name": "f"}', None),
        ('[{"function": {}}]', None),
        ("[null]", None),
    ],
)
def test_tools_are_read_in_both_forms(modules: Page, text: str, names: list[str] | None) -> None:
    found = modules.evaluate("async (text) => (await import('/console/settings.js')).toolsIn(text)", text)
    assert (found if found is None else [each["function"]["name"] for each in found]) == names
    assert all(each["type"] == "function" for each in found or [])


CONVERSATION = """async (turns) => {
    sessionStorage.setItem("quire.conversation", JSON.stringify(turns));
    const { Conversation } = await import("/console/conversation.js");
    const messages = new Conversation().messages("");
    sessionStorage.clear();
    return messages;
}"""


def test_calls_are_sent_with_their_results_and_never_alone(modules: Page) -> None:
    call = {"id": "c1", "name": "f", "arguments": "{}"}
    asked = {"role": "user", "text": "Time?"}
    called = {"role": "assistant", "text": "", "calls": [call]}
    result = {"role": "tool", "id": "c1", "name": "f", "text": "noon"}
    told = modules.evaluate(CONVERSATION, [asked, called, result])
    assert told == [
        {"role": "user", "content": "Time?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]
    assert modules.evaluate(CONVERSATION, [asked, called, asked]) == [{"role": "user", "content": "Time?"}] * 2
