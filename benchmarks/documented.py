"""Tables of the documentation that come from committed results: what stands between two marks is written from JSON.

A section begins with `<!-- figures KIND FILE -->` and ends with `<!-- end of figures -->`. Numbers are never written
there by hand: `scripts/figures` writes them, and a test compares.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.loadgen_agreement.table import tables as agreement_tables
from benchmarks.peers.doc_table import tables as peer_tables
from benchmarks.prefix_sharing.table import tables as sharing_tables

Tables = Callable[[Mapping[str, Any]], list[str]]
_KINDS: dict[str, Tables] = {
    "peers": peer_tables,
    "prefix_sharing": sharing_tables,
    "loadgen_agreement": agreement_tables,
}
_SECTION = re.compile(
    r"(?P<head><!-- figures (?P<kind>\S+) (?P<file>\S+) -->\n).*?(?P<tail><!-- end of figures -->)", re.DOTALL
)


def with_figures(text: str, root: Path) -> str:
    """The page with every section written anew from its file below `root`."""
    return _SECTION.sub(
        lambda found: found["head"] + _body(found["kind"], root / found["file"], root) + found["tail"], text
    )


def _body(kind: str, path: Path, root: Path) -> str:
    """The tables, and the picture of the same name where there is one; paths are from docs/."""
    if kind not in _KINDS:
        raise ValueError(f"there are no figures of kind {kind!r}; there are {', '.join(_KINDS)}")
    if not path.exists():
        return "\nNot measured yet.\n\n"
    lines = _KINDS[kind](json.loads(path.read_text(encoding="utf-8")))
    picture = path.with_suffix(".png")
    if picture.exists():
        lines += ["", f"![{kind.replace('_', ' ')}]({'../' + picture.relative_to(root).as_posix()})"]
    return "\n" + "\n".join(lines) + "\n\n"
