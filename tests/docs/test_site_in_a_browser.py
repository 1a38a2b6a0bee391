"""The built site, opened as a file in a real browser: search works, and nothing is asked of another machine."""

import os
import re
import shutil
from pathlib import Path

import pytest

from scripts._site.__main__ import build

pytestmark = pytest.mark.slow
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def test_search_works_without_a_server(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"there is no Chromium here (looked for {', '.join(BROWSERS)})")
    from playwright.sync_api import expect, sync_playwright

    assert build(tmp_path / "site") == []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "site" / "rooms" / "core.html").as_uri())
        page.keyboard.press("Control+k")
        expect(page.get_by_placeholder("Search")).to_be_focused(timeout=60_000)
        page.keyboard.type("preemption")
        expect(page.get_by_text(re.compile(r"^[1-9]\d* results$"))).to_be_visible(timeout=60_000)
        browser.close()
    assert asked
    assert [url for url in asked if not url.startswith("file:")] == []
