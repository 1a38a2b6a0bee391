"""The rates of a comparison as bars, with their spread, from the record that `compare.py` keeps.

python -m benchmarks.peers.plot benchmarks/results/peers_x86_64.json peers.png
"""

import json
import sys
from pathlib import Path
from statistics import median

from quire.observe.bench_plots import PeerBars, bars_picture


def draw(record: Path, picture: Path) -> None:
    told = json.loads(record.read_text(encoding="utf-8"))
    title = f"quire beside its peers, {told['threads']} threads, {told['date']}"
    cases = [_bars(name, figures) for name, figures in told["figures"].items() if _is_rate(name)]
    picture.write_bytes(bars_picture(title, cases))


def _is_rate(name: str) -> bool:
    """What servers show beside it, such as memory and first tokens, has other units."""
    return name.rpartition(", ")[2] == "output" or not name.startswith("server")


def _bars(name: str, figures: list[dict[str, float | str]]) -> PeerBars:
    values: dict[str, list[float]] = {}
    for figure in figures:
        values.setdefault(str(figure["contestant"]), []).append(float(figure["value"]))
    return PeerBars(name, {who: (median(each), min(each), max(each)) for who, each in values.items()})


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
