"""The console behind the real gate with keys: the browser itself asks for the key, and every call carries it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from quire.config.observe import ObserveConfig
from quire.observe.logs import RequestLog
from quire.server.drain import Drain
from quire.server.gate.gate import guarded
from tests.server.console.conftest import Watch
from tests.server.console.fake_server import Script, fake_app, serving
from tests.server.console.test_browser import ask, open_console
from tests.server.gate.gate_app import ALICE, Metrics, Seen, ring


@pytest.fixture
def locked_url(script: Script) -> Iterator[str]:
    log = RequestLog(ObserveConfig())
    app = guarded(fake_app(script), keys=ring(), drain=Drain(), metrics=Metrics(Seen()), log=log)
    with serving(app) as url:
        yield url


def test_page_is_not_given_without_a_key(browser: Browser, locked_url: str) -> None:
    context = browser.new_context()
    answer = context.request.get(f"{locked_url}/", headers={"Accept": "text/html"})
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    context.close()


def test_key_given_to_the_browser_opens_everything(browser: Browser, locked_url: str) -> None:
    context = browser.new_context(base_url=locked_url, http_credentials={"username": "", "password": ALICE})
    page = context.new_page()
    watch = Watch(page, locked_url)
    open_console(page)
    ask(page, "Hello")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto("/docs")
    expect(page.locator(".operation").first).to_be_visible()
    context.close()
    assert watch.problems == []
