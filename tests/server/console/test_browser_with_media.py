"""Pictures and sound in the console, in a real browser: pasted, dropped, chosen, refused, and answered by a model."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.multimodal.sounds import tone, wav
from tests.multimodal.tiny_vision import as_bytes, make_vision, picture
from tests.server.console.conftest import Watch
from tests.server.console.fake_server import MODEL, Script
from tests.server.console.test_browser import ask, limit_answers, open_console
from tests.server.live import LiveServer, running_server

LEAF = as_bytes(picture(60, 90, 4))
SOUND = wav(tone(0.2))
COPY = """async (data) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": new Blob([bytes], { type: "image/png" }) })]);
}"""
DROP = """([name, type, data, padding]) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes, new Uint8Array(padding)], name, { type }));
    const options = { dataTransfer, bubbles: true, cancelable: true };
    const target = document.querySelector("#messages");
    for (const kind of ["dragover", "drop"]) target.dispatchEvent(new DragEvent(kind, options));
}"""


def paste(page: Page, image: bytes) -> None:
    """By the clipboard and the keyboard, as a person does it."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate(COPY, base64.b64encode(image).decode())
    page.get_by_label("Message", exact=True).focus()
    page.keyboard.press("Control+V")


def drop(page: Page, name: str, kind: str, data: bytes, padding: int = 0) -> None:
    page.evaluate(DROP, [name, kind, base64.b64encode(data).decode(), padding])


def parts(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["messages"][-1]["content"]
    return found


def test_media_are_shown_and_sent(page: Page, watch: Watch, script: Script) -> None:
    script.modalities = ("text", "image", "audio")
    open_console(page)
    paste(page, LEAF)
    expect(page.locator("#attachments img")).to_have_count(1)
    drop(page, "bell.wav", "audio/wav", SOUND)
    expect(page.locator("#attachments audio")).to_have_count(1)
    page.locator("#attach-file").set_input_files({"name": "two.png", "mimeType": "image/png", "buffer": LEAF})
    expect(page.locator("#attachments img")).to_have_count(2)
    page.get_by_role("button", name="Remove two.png").click()
    expect(page.locator("#attachments li")).to_have_count(2)
    ask(page, "What is it?")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    assert [part["type"] for part in parts(script.bodies[0])] == ["image_url", "audio_url", "text"]
    assert parts(script.bodies[0])[1]["audio_url"]["url"] == f"data:audio/wav;base64,{base64.b64encode(SOUND).decode()}"
    expect(page.locator(".question img")).to_have_js_property("naturalWidth", 90)
    expect(page.locator(".question audio")).to_be_visible()
    expect(page.locator("#attachments")).to_be_hidden()
    page.reload()
    expect(page.locator(".question img")).to_have_js_property("naturalWidth", 90)
    ask(page, "And again?")
    expect(page.locator(".answer .figures").nth(1)).to_contain_text("tokens/s")
    assert len(script.bodies[1]["messages"][0]["content"]) == 3, "what was sent is sent again with what follows"


def test_media_alone_are_a_message(page: Page, watch: Watch, script: Script) -> None:
    script.modalities = ("text", "image")
    open_console(page)
    drop(page, "leaf.png", "image/png", LEAF)
    expect(page.locator("#attachments img")).to_have_count(1)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    assert [part["type"] for part in parts(script.bodies[0])] == ["image_url"]


def test_what_the_model_does_not_read_is_refused_with_a_note(page: Page, watch: Watch, script: Script) -> None:
    open_console(page)
    expect(page.get_by_role("button", name="Attach a file")).to_be_hidden()
    note = page.locator("#attachments-note")
    paste(page, LEAF)
    expect(note).to_contain_text(f"is not sent: {MODEL} reads text and nothing else.")
    page.locator("#model").select_option("fake/adapter")
    expect(note).to_be_hidden()
    drop(page, "leaf.png", "image/png", LEAF)
    expect(page.locator("#attachments img")).to_have_count(1)
    drop(page, "a.zip", "application/zip", b"PK")
    expect(note).to_contain_text("a.zip is not sent")
    page.locator("#model").select_option(MODEL)
    ask(page, "What is it?")
    expect(note).to_contain_text("leaf.png is not sent")
    assert script.bodies == []


def test_pictures_too_large_for_the_tab_leave_their_words(page: Page, watch: Watch, script: Script) -> None:
    script.modalities = ("text", "image")
    open_console(page)
    drop(page, "large.png", "image/png", LEAF, padding=6 << 20)
    expect(page.locator("#attachments img")).to_have_count(1)
    ask(page, "What is it?")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    page.reload()
    expect(page.locator(".question")).to_contain_text("large.png is no longer here")
    expect(page.locator(".question")).to_contain_text("What is it?")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")


@pytest.fixture(scope="module")
def vision_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tmp_path_factory.mktemp("vision")
    model = str(make_vision("qwen2_5_vl", folder).folder)
    options = ("--dtype", "float32", "--gpu-memory-utilization", "0.05", "--served-model-name", "tiny-vision")
    with running_server(tmp_path_factory.mktemp("server"), *options, model=model) as running:
        yield running


def test_a_pasted_image_is_answered_by_a_vision_model(browser: Browser, vision_server: LiveServer) -> None:
    page = browser.new_page(base_url=vision_server.url)
    watch = Watch(page, vision_server.url)
    open_console(page)
    limit_answers(page)
    expect(page.get_by_role("button", name="Attach a file")).to_be_visible()
    paste(page, LEAF)
    expect(page.locator("#attachments img")).to_have_count(1)
    ask(page, "What is it?")
    expect(page.locator(".answer .figures")).to_contain_text("tokens")
    expect(page.locator(".question img")).to_have_js_property("naturalWidth", 90)
    drop(page, "bell.wav", "audio/wav", SOUND)
    expect(page.locator("#attachments-note")).to_contain_text("reads text, images and nothing else")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.close()
    assert watch.problems == []
