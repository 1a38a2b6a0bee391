"""The drawn and recorded pictures: current, small, well-formed, and in the colours of their reader."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts._recording import COLUMNS, COMMANDS, Screen, svg

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
TEXT = "{http://www.w3.org/2000/svg}text"


def test_diagrams_are_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "diagrams", "--check"], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["architecture", "blocks", "session", "step"])
def test_pictures_follow_the_readers_colours_and_are_small(name: str) -> None:
    path = IMAGES / f"{name}.svg"
    assert path.stat().st_size < 150_000
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme:dark" in path.read_text(encoding="utf-8")


def test_the_session_that_is_shown_is_the_one_that_is_recorded() -> None:
    texts = [each for each in ElementTree.parse(IMAGES / "session.svg").iter(TEXT) if each.get("class") == "typed"]
    typed = "".join(each.text or "" for each in texts)
    assert typed.replace(" ", "") == "".join(COMMANDS).replace(" ", "")


def test_a_screen_wraps_long_lines_and_erases_progress() -> None:
    screen = Screen()
    screen.write("Loading")
    screen.clock = 2.0
    screen.erase_line()
    screen.write("x" * (COLUMNS + 3) + "\ny")
    places = [(piece.row, piece.column, len(piece.text), piece.end) for piece in screen.pieces]
    assert places == [(0, 0, 7, 2.0), (0, 0, COLUMNS, None), (1, 0, 3, None), (2, 0, 1, None)]
    shown = list(ElementTree.fromstring(svg(screen)).iter(TEXT))
    assert [each.get("visibility") for each in shown] == ["hidden", None, None, None]
    assert screen.rows == 3
