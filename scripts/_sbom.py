"""Writes quire's software bill of materials as CycloneDX JSON: every package it needs, as installed here.

`cyclonedx-py` describes the whole environment; what is there for tests and tools is taken out again.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from _dependencies import check_extras, dependencies
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Describe, cut, check against CycloneDX' schema, write."""
    options = _options()
    wrong = check_extras(options.extra)
    if wrong:
        print(f"scripts/sbom: {wrong}", file=sys.stderr)
        return 1
    wanted = dependencies(options.extra)
    bill = cut(_environment(), wanted)
    text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
    broken = _broken(text)
    if broken:
        print(f"scripts/sbom: the bill is not valid CycloneDX: {broken}", file=sys.stderr)
        return 1
    out: Path = options.out or ROOT / "dist" / f"quire-{wanted['quire']}.cdx.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(f"{out}: {len(bill['components'])} components")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/sbom", description=__doc__)
    parser.add_argument(
        "--extra", action="append", default=[], help="an extra of quire to include; may be given several times"
    )
    parser.add_argument("--out", type=Path, help="the file to write (default: dist/quire-VERSION.cdx.json)")
    return parser.parse_args()


def _environment() -> dict[str, Any]:
    command = (
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--output-reproducible",
        "--no-validate",
        sys.executable,
    )
    bill: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return bill


def cut(bill: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """The bill with quire as its subject and only `wanted` (normalized names) as components."""
    kept = [each for each in bill["components"] if canonicalize_name(each["name"]) in wanted]
    missing = set(wanted) - {str(canonicalize_name(each["name"])) for each in kept}
    if missing:
        raise ValueError(f"cyclonedx-py describes no {', '.join(sorted(missing))}")
    refs = {each["bom-ref"] for each in kept}
    subject = next(each for each in kept if each["name"] == "quire")
    # where the environment got it from is a path of this machine
    subject = {name: value for name, value in subject.items() if name != "externalReferences"} | {"type": "application"}
    graph = [
        {**edge, "dependsOn": sorted(set(edge.get("dependsOn", ())) & refs)}
        for edge in bill["dependencies"]
        if edge["ref"] in refs
    ]
    return {
        **bill,
        "metadata": {**bill["metadata"], "component": subject},
        "components": [each for each in kept if each["name"] != "quire"],
        "dependencies": graph,
    }


def _broken(text: str) -> str | None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return None if found is None else str(found)


if __name__ == "__main__":
    sys.exit(main())
