"""scripts/audit does not take what it could not look up for clean."""

from types import ModuleType
from typing import Any

import pytest

CLEAN = {"name": "msgspec", "version": "0.19.0", "vulns": []}
SKIPPED = {"name": "numpy", "skip_reason": "Dependency not found on PyPI and could not be audited"}
BAD = {"name": "jinja2", "version": "3.1.2", "vulns": [{"id": "GHSA-1", "fix_versions": ["3.1.6"]}]}
UNMENDED = {"name": "jinja2", "version": "3.1.2", "vulns": [{"id": "GHSA-2", "fix_versions": []}]}


@pytest.mark.parametrize(
    ("answer", "code", "line"),
    [
        ([CLEAN], 0, "1 of 1 packages looked up, 0 vulnerabilities"),
        ([CLEAN, SKIPPED], 2, "not looked up: numpy; the database was not reached, or does not know them"),
        ([SKIPPED], 2, "none of 1 packages could be looked up: the database was not reached"),
        ([CLEAN, BAD], 1, "jinja2: GHSA-1, mended in 3.1.6"),
        ([SKIPPED, UNMENDED], 1, "jinja2: GHSA-2, mended in no version yet"),
        ([], 0, "0 of 0 packages looked up, 0 vulnerabilities"),
    ],
)
def test_verdict(audit_script: ModuleType, answer: list[dict[str, Any]], code: int, line: str) -> None:
    lines, found = audit_script.verdict([entry["name"] for entry in answer], answer)
    assert found == code
    assert line in lines


def test_a_package_that_the_answer_leaves_out_was_not_looked_up(audit_script: ModuleType) -> None:
    assert audit_script.verdict(["msgspec", "numpy"], [CLEAN])[1] == 2


def test_a_database_that_does_not_answer_is_no_clean_bill(audit_script: ModuleType) -> None:
    lines, code = audit_script.verdict(["numpy"], "Failed to resolve 'api.osv.dev'")
    assert (lines, code) == (["could not reach the database of vulnerabilities: Failed to resolve 'api.osv.dev'"], 2)
