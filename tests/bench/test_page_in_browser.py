"""The HTML page of a report in a real browser: it shows everything, complains about nothing and fetches nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from quire.bench.page import write_page
from quire.bench.pictures import pictures
from quire.bench.report import Report
from quire.bench.verdict import verdict
from quire.cli.bench.outputs import grids_of
from tests.bench.test_report import single_report, sweep_report
from tests.server.console.conftest import Watch, browser

__all__ = ["browser"]  # a fixture
NARROW, WIDE = 390, 1280


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": WIDE, "height": 900})
    yield context.new_page()
    context.close()


def opened(page: Page, report: Report, folder: Path) -> Watch:
    path = folder / "report.html"
    write_page(report, grids_of(report, (90.0, 99.0)), pictures(report), path)
    watch = Watch(page, "")  # no host at all: the file alone
    page.goto(path.as_uri())
    return watch


@pytest.mark.parametrize("report", [single_report(), sweep_report()], ids=["single", "sweep"])
def test_everything_shows_and_nothing_is_fetched(page: Page, report: Report, tmp_path: Path) -> None:
    watch = opened(page, report, tmp_path)
    boxes = [chart.bounding_box() or {} for chart in page.get_by_role("img").all()]
    assert len(boxes) == len(pictures(report))
    assert all(box["width"] > 300 and box["height"] > 150 for box in boxes)
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


def test_the_verdict_is_the_first_line(page: Page, tmp_path: Path) -> None:
    opened(page, sweep_report(), tmp_path)
    first = page.locator("body").inner_text().strip().splitlines()[0]
    assert first == verdict(sweep_report()).text
    assert page.get_by_role("heading", level=1).inner_text() == first


@pytest.mark.parametrize("report", [single_report(), sweep_report()], ids=["single", "sweep"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_nothing_is_cut_off(page: Page, tmp_path: Path, report: Report, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, report, tmp_path)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert all(page.eval_on_selector_all(".scroller", "(all) => all.map((one) => one.scrollWidth <= one.clientWidth)"))
    for text in page.locator("svg text").all():
        chart = text.locator("xpath=..").bounding_box() or {}
        box = text.bounding_box() or {}
        assert box["x"] >= chart["x"] - 1, text.text_content()
        assert box["x"] + box["width"] <= chart["x"] + chart["width"] + 1, text.text_content()
        assert box["height"] >= 9, "too small to be read"


def test_colours_follow_the_system(page: Page, tmp_path: Path) -> None:
    opened(page, single_report(), tmp_path)
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        line = page.locator("svg .line").first.evaluate("(node) => getComputedStyle(node).stroke")
        colours.append((ground, line))
    light, dark = colours
    assert light == ("rgb(246, 243, 236)", "rgb(28, 93, 122)")
    assert all(one != other for one, other in zip(light, dark, strict=True))
