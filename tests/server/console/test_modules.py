"""The console's modules one by one, in the browser: streams cut anywhere, text that tries to be HTML, odd numbers."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.server.console.conftest import Watch
from tests.server.console.fake_server import Script, fake_app, serving

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
    assert "<figcaption>js</figcaption>" in html
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


@pytest.mark.parametrize(("value", "bound"), [(0.9, 1), (1, 1), (1.1, 2), (2.1, 5), (51, 100), (0.003, 0.005)])
def test_axes_end_at_round_numbers(modules: Page, value: float, bound: float) -> None:
    found = modules.evaluate("async (value) => (await import('/console/chart.js')).roundUp(value)", value)
    assert found == pytest.approx(bound)


@pytest.mark.parametrize("blocks", [1, 7, 500, 4096, 20_000, 100_000, 3_000_000])
@pytest.mark.parametrize("width", [328, 620, 1400])
def test_block_map_has_room_for_every_block(modules: Page, blocks: int, width: int) -> None:
    plan = modules.evaluate(
        "async ([blocks, width]) => (await import('/console/blocks.js')).layout(blocks, width)", [blocks, width]
    )
    assert plan["columns"] * plan["rows"] * plan["perCell"] >= blocks
    assert plan["columns"] * plan["cell"] <= width
    assert plan["rows"] * plan["cell"] <= 168
