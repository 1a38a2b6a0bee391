"""The pictures of docs/images: starts `quire serve`, keeps it busy and measures it, and photographs its pages and the
report in Chromium."""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from urllib.error import URLError
from urllib.request import Request, urlopen

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.multimodal.tiny_vision import as_bytes, make_vision, picture  # the tests' own tiny model

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SYSTEM = "You are a patient librarian. You answer in full sentences, name your sources and never hurry. " * 12
TOPICS = ("parchment", "ink", "bookbinding", "catalogues", "marginalia", "printing", "maps", "paper")
QUESTION = "Write a Python function that says whether a year is a leap year."
SIZES = (("light", "light", 1440, 1080), ("dark", "dark", 1440, 1080), ("narrow", "light", 390, 844))
MEASURED = ("--num-requests", "24", "--input-len", "128", "--output-len", "32", "--seed", "7")
LOADS = ("--sweep", "rate=0.5,1,2,4", "--refine", "1", "--goodput", "ttft:1000", "tpot:150")
COPY = """async (data) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": new Blob([bytes], { type: "image/png" }) })]);
}"""
COLOURS = 256
READY_SECONDS = 120
PATIENCE = 300_000
"""Milliseconds: the server that is photographed takes all cores."""


@contextmanager
def server(*options: str) -> Iterator[str]:
    """A server on a free port, of the default model unless the options name another."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quire = Path(sys.executable).with_name("quire")
    process = subprocess.Popen([quire, "serve", *options, "--port", str(port)])
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(f"{url}/ready"):
                return
        except (URLError, ConnectionError):
            time.sleep(0.5)
    sys.exit(f"the server did not become ready within {READY_SECONDS} s; its log is above.")


@contextmanager
def load(url: str, clients: int) -> Iterator[None]:
    """Clients that ask one question after the other, all with the same long prefix."""
    over = Event()
    with urlopen(f"{url}/v1/models") as answer:
        model = json.load(answer)["data"][0]["id"]

    def ask(client: int) -> None:
        for turn in range(1000):
            if over.is_set():
                return
            topic = TOPICS[(client * 3 + turn) % len(TOPICS)]
            said = {"role": "user", "content": f"Tell me about {topic}, part {turn + 1}."}
            messages = [{"role": "system", "content": SYSTEM}, said]
            body = {"model": model, "messages": messages, "max_tokens": 48 + 40 * client, "temperature": 0.8}
            headers = {"Content-Type": "application/json"}
            request = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
            with urlopen(request) as answer:
                answer.read()
            over.wait(1 + (client + turn) % 4)

    with ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(ask, client) for client in range(clients)]
        try:
            yield
        finally:
            over.set()
            for each in asking:
                each.result()


def photograph(page: Page, url: str, seconds: float) -> None:
    page.goto(url)
    expect(page.locator("#status-text")).to_have_text("Ready")
    page.wait_for_timeout(seconds * 1000)
    page.locator("#settings summary").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Max tokens").fill("128")
    page.locator("#settings summary").click()
    page.get_by_label("Message", exact=True).fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s", timeout=PATIENCE)
    in_every_size(page, "console", pause=1500)  # one poll, so that everything is drawn in its new size and colours
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{url}/docs")
    expect(page.locator("#post-v1-chat-completions")).to_be_visible()
    page.screenshot(path=IMAGES / "api.png")


def photograph_image(page: Page, url: str) -> None:
    """An image that was pasted and answered. The model is a tiny one of random weights, whose words mean nothing."""
    page.set_viewport_size({"width": 1280, "height": 760})
    page.emulate_media(color_scheme="light")
    page.goto(url)
    expect(page.locator("#status-text")).to_have_text("Ready")
    page.locator("#settings summary").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Max tokens").fill("12")
    page.locator("#settings summary").click()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = base64.b64encode(as_bytes(picture(24, 36, 4).resize((540, 360)))).decode()
    page.evaluate(COPY, shown)
    page.get_by_label("Message", exact=True).focus()
    page.keyboard.press("Control+V")
    expect(page.locator("#attachments img")).to_have_count(1)
    page.get_by_label("Message", exact=True).fill("What is in this picture?")
    page.keyboard.press("Enter")
    expect(page.locator(".answer .figures")).to_contain_text("tokens", timeout=PATIENCE)
    page.evaluate(COPY, shown)
    page.keyboard.press("Control+V")
    expect(page.locator("#attachments img")).to_have_count(1)
    page.get_by_label("Message", exact=True).fill("And in this one?")
    page.locator(".chat").screenshot(path=IMAGES / "console-image.png", timeout=PATIENCE)


def in_every_size(page: Page, name: str, *, pause: int = 0) -> None:
    """Light, dark and narrow; the last with all that is below the window."""
    for kind, scheme, width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_timeout(pause)
        if kind == "narrow":
            show_all(page, width)
            page.wait_for_timeout(pause)
            show_all(page, width)  # what came meanwhile too
        page.screenshot(path=IMAGES / f"{name}-{kind}.png", timeout=PATIENCE)


def show_all(page: Page, width: int) -> None:
    """A window as high as its page. (Chromium's picture of a `full_page` never ends where the page grows meanwhile.)"""
    # the chat is as high as the window, and keeps the height it had
    page.evaluate("for (const chat of document.querySelectorAll('.chat')) chat.style.height = `${chat.offsetHeight}px`")
    page.set_viewport_size({"width": width, "height": page.evaluate("document.documentElement.scrollHeight")})


def photograph_report(page: Page, url: str, folder: Path) -> None:
    """A sweep of the server, as its HTML file shows it."""
    path = folder / "report.html"
    quire = str(Path(sys.executable).with_name("quire"))
    subprocess.run([quire, "bench", "serve", "--url", url, *MEASURED, *LOADS, "--html", str(path)], check=True)
    page.goto(path.as_uri())
    in_every_size(page, "report")


def make_small(image: Path) -> None:
    """Fewer colours: a page has few, and a repository keeps its pictures for ever."""
    whole = Image.open(image).convert("RGB")
    whole.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE).save(image, optimize=True)


def main() -> None:
    parser = ArgumentParser(prog="scripts/screenshots", description=__doc__)
    parser.add_argument("--seconds", type=float, default=200, help="how long the charts fill before the pictures")
    parser.add_argument("--clients", type=int, default=4, help="how many ask at the same time meanwhile")
    parser.add_argument("--only-image", action="store_true", help="only the picture of an image in the chat")
    arguments = parser.parse_args()
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        sys.exit(f"there is no Chromium here (looked for {', '.join(BROWSERS)}); on Debian: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        page = browser.new_page(viewport={"width": 1440, "height": 900}, device_scale_factor=1.5)
        if not arguments.only_image:
            with server() as url:
                with load(url, arguments.clients):
                    photograph(page, url, arguments.seconds)
                photograph_report(page, url, Path(folder))
        model = make_vision("qwen2_5_vl", Path(folder) / "model").folder
        with server(str(model), "--served-model-name", "tiny-vision", "--dtype", "float32") as url:
            photograph_image(page, url)
        browser.close()
    for image in sorted(path for path in IMAGES.glob("*.png") if path.stat().st_mtime >= began):
        make_small(image)
        print(f"{image.relative_to(IMAGES.parent.parent)}: {image.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
