"""Looks up every package that quire needs in the databases of known vulnerabilities, which takes a network.

The exit code is 0 where all are known to be clean, 1 where one is vulnerable, 2 where some could not be looked up.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _dependencies import check_extras, dependencies


def main() -> int:
    """Ask pip-audit, and tell apart what it found clean and what it could not look up."""
    options = _options()
    wrong = check_extras(options.extra)
    if wrong:
        print(f"scripts/audit: {wrong}", file=sys.stderr)
        return 2
    wanted = dependencies(options.extra)
    del wanted["quire"]
    lines, code = verdict(list(wanted), _ask(wanted, options.service))
    print("\n".join(lines))
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/audit", description=__doc__)
    parser.add_argument(
        "--extra", action="append", default=[], help="an extra of quire to include; may be given several times"
    )
    parser.add_argument("--service", choices=("pypi", "osv"), default="pypi", help="the database (default: pypi)")
    return parser.parse_args()


def _ask(wanted: dict[str, str], service: str) -> list[dict[str, Any]] | str:
    """pip-audit's entries, or the last line of what it said instead."""
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder, "requirements.txt")
        # a local build (2.9.0+cpu) is on no index; its sources are those of the release
        pinned.write_text("".join(f"{name}=={version.partition('+')[0]}\n" for name, version in wanted.items()))
        command = (sys.executable, "-m", "pip_audit", "--requirement", str(pinned), "--no-deps", "--disable-pip")
        settings = ("--vulnerability-service", service, "--format", "json", "--progress-spinner", "off")
        done = subprocess.run((*command, *settings), capture_output=True, text=True, check=False)
    try:
        entries: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        return (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
    return entries


def verdict(wanted: list[str], answer: list[dict[str, Any]] | str) -> tuple[list[str], int]:
    """Lines to print and the exit code. pip-audit itself passes over what it cannot look up, and ends with 0."""
    if isinstance(answer, str):
        return [f"could not reach the database of vulnerabilities: {answer}"], 2
    judged = {entry["name"]: entry["vulns"] for entry in answer if "vulns" in entry}
    if wanted and not judged:
        return [f"none of {len(wanted)} packages could be looked up: the database was not reached"], 2
    lines = [
        f"{name}: {each['id']}, mended in {', '.join(each['fix_versions']) or 'no version yet'}"
        for name, found in judged.items()
        for each in found
    ]
    unknown = [name for name in wanted if name not in judged]
    lines.append(f"{len(judged)} of {len(wanted)} packages looked up, {len(lines)} vulnerabilities")
    if unknown:
        lines.append(f"not looked up: {', '.join(unknown)}; the database was not reached, or does not know them")
    return lines, 1 if any(judged.values()) else 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
