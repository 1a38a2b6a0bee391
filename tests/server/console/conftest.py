"""Headless Chromium for the console's tests: the system's own, never a downloaded one."""

import os
import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.server.console.fake_server import Script, fake_app, serving

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60_000
"""Milliseconds until a page that does not come to the expected state is taken to be stuck."""


class Watch:
    """What a page must not do: write errors to its console, or ask another host for anything."""

    def __init__(self, page: Page, base_url: str) -> None:
        self.problems: list[str] = []
        self.expected = ""
        """Part of an error that a test provokes, such as the status of an answer."""
        self._host = urlsplit(base_url).netloc
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        is_expected = self.expected and self.expected in message.text
        if message.type in ("error", "warning") and not is_expected:
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.netloc != self._host:
            self.problems.append(f"request to {request.url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a module: Playwright's loop would stand in the way of other tests' loops for as long as it runs."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"did not run: there is no Chromium here (looked for {', '.join(NAMES)})")
    expect.set_options(timeout=PATIENCE)
    sandbox = os.geteuid() != 0  # Chromium refuses to sandbox what root starts
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=sandbox)
        yield browser
        browser.close()


@pytest.fixture
def script() -> Script:
    """What the fake server says; a test may change it before the page asks."""
    return Script()


@pytest.fixture
def fake_url(script: Script) -> Iterator[str]:
    with serving(fake_app(script)) as url:
        yield url


@pytest.fixture
def base_url(fake_url: str) -> str:
    """The server the page comes from."""
    return fake_url


@pytest.fixture
def page(browser: Browser, base_url: str) -> Iterator[Page]:
    context = browser.new_context(base_url=base_url, viewport={"width": 1280, "height": 800}, color_scheme="light")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    yield page
    context.close()


@pytest.fixture
def watch(page: Page, base_url: str) -> Iterator[Watch]:
    watch = Watch(page, base_url)
    yield watch
    assert watch.problems == []
