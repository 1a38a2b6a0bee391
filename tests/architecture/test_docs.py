"""The documentation says what the code enforces, and its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import rules

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_table_in_the_documentation_is_the_one_enforced() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert rules.table_in(text) == rules.ALLOWED_ROOMS


def test_every_room_has_its_page() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "rooms").glob("*.md")}
    assert pages == set(rules.ALLOWED_ROOMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    relative = [target for target in targets if "://" not in target]
    assert [target for target in relative if not (page.parent / target).exists()] == []


def test_pages_of_rooms_list_what_is_in_them() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "rooms", "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def test_figures_are_those_of_the_committed_results() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "figures", "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
