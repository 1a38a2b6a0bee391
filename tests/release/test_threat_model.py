"""The tests that docs/threat_model.md names exist, and every rule has some."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_test_that_is_named_exists() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in NAMED
        if not (ROOT / path).is_file()
        or not re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_every_rule_is_there_and_shown_by_a_test() -> None:
    rows = re.findall(r"^\| \*\*R(\d+) .*$", PAGE, re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 12))
    lines = [line for line in PAGE.splitlines() if line.startswith("| **R")]
    assert all(".py::test_" in line.rpartition(" | ")[2] for line in lines)
