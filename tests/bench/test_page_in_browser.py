"""The HTML page of a report in a real browser: it shows everything, complains about nothing and fetches nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from quire.bench.page import write_page
from quire.bench.pictures import pictures
from quire.bench.report import Report
from quire.cli.bench.outputs import grids_of
from tests.bench.test_report import single_report, sweep_report
from tests.server.console.conftest import Watch, browser

__all__ = ["browser"]  # a fixture
NARROW, WIDE = 420, 1280


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": WIDE, "height": 900})
    yield context.new_page()
    context.close()


def opened(page: Page, report: Report, folder: Path) -> Watch:
    pytest.importorskip("matplotlib")
    path = folder / "report.html"
    write_page(report, grids_of(report, (90.0, 99.0)), pictures(report), path)
    watch = Watch(page, "")  # no host at all: the file, and pictures inside it
    page.goto(path.as_uri())
    return watch


@pytest.mark.parametrize("report", [single_report(), sweep_report()], ids=["single", "sweep"])
def test_everything_shows_and_nothing_is_fetched(page: Page, report: Report, tmp_path: Path) -> None:
    watch = opened(page, report, tmp_path)
    widths = page.eval_on_selector_all("img", "images => images.map(image => image.complete && image.naturalWidth)")
    assert len(widths) == 2
    assert all(width > 500 for width in widths)
    for grid in grids_of(report, (90.0, 99.0)):
        assert page.get_by_role("heading", name=grid.title, exact=True).is_visible()
        for row in grid.rows:
            assert page.get_by_role("cell", name=row[0], exact=True).first.is_visible()
    assert watch.problems == []


def test_what_a_server_said_is_shown_as_text(page: Page, tmp_path: Path) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    watch = opened(page, single_report(), tmp_path)
    assert page.get_by_text("<script>alert(1)</script>").is_visible()
    assert watch.problems == []


def test_the_verdict_of_a_sweep_is_at_the_top(page: Page, tmp_path: Path) -> None:
    opened(page, sweep_report(), tmp_path)
    verdict = page.get_by_text("The highest rate that holds 90%").bounding_box()
    table = page.get_by_role("table").first.bounding_box()
    assert verdict is not None
    assert table is not None
    assert verdict["y"] < table["y"]


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_pages_are_never_wider_than_the_window(page: Page, tmp_path: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, sweep_report(), tmp_path)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
