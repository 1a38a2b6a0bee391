"""The console of a real server whose engine is killed in the middle of an answer."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.server.console.conftest import Watch
from tests.server.console.test_browser import ask, open_console
from tests.server.live import LiveServer, running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with running_server(tmp_path) as server:
        yield server


@pytest.fixture
def base_url(server: LiveServer) -> str:
    return server.url


def test_page_tells_that_the_engine_restarts_and_the_answer_continues(
    page: Page, watch: Watch, server: LiveServer
) -> None:
    open_console(page)
    page.locator("#settings summary").click()
    page.get_by_label("Max tokens").fill("200")
    page.get_by_label("Temperature").fill("0")
    page.locator("#settings summary").click()
    ask(page, "Tell me a long story about a library.")
    expect(page.locator(".answer .text")).not_to_be_empty()
    os.kill(server.engine_pids()[0], signal.SIGKILL)
    expect(page.locator("#banner")).to_contain_text("Your answer continues")
    expect(page.locator(".answer .figures")).to_contain_text("tokens/s")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#engines td").nth(2)).to_have_text("1")  # restarts
