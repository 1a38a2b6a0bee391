"""`scripts/soak`: real models under mixed traffic and random faults, and a check all along that every promise holds.

Scenes are played one after the other, each for its share of the minutes. Every run adds its lines to the record; the
summary and the plot are of all runs in it.
"""

import argparse
import asyncio
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.plot import plot
from tests.soak.record import Record, runs_of
from tests.soak.run import play
from tests.soak.scenes import LONG, SCENES
from tests.soak.small_disk import enter_namespace
from tests.soak.summary import summary


def main() -> int:
    """1 where a promise was broken."""
    asked = _arguments()
    if asked.minutes > 0:
        enter_namespace("tests.soak")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped on the way out
    violations = _play_all(asked) if asked.minutes > 0 else 0
    runs = runs_of(asked.record)
    print(summary(runs))
    if asked.markdown is not None:
        asked.markdown.write_text(summary(runs) + "\n", encoding="utf-8")
    if asked.plot is not None:
        asked.plot.write_text(plot(runs), encoding="utf-8")
    return 1 if violations else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of fire in all (10); 0: only sum up the record")
    parser.add_argument("--scenes", default=",".join(LONG), help=f"of {', '.join(SCENES)} ({','.join(LONG)})")
    parser.add_argument("--streams", type=int, default=3, help="clients at once (3)")
    parser.add_argument("--pause", type=float, default=0.3, help="mean seconds between a client's requests (0.3)")
    parser.add_argument("--gap", type=float, default=20.0, help="mean seconds between faults (20)")
    parser.add_argument("--seed", type=int, default=None, help="of traffic and faults; unset: the time")
    parser.add_argument("--record", type=Path, default=Path("soak.jsonl"), help="file to add to (soak.jsonl)")
    parser.add_argument(
        "--logs", type=Path, default=None, help="folder that keeps the servers' logs; unset: none are kept"
    )
    parser.add_argument("--markdown", type=Path, default=None, help="write the summary of the whole record here")
    parser.add_argument("--plot", type=Path, default=None, help="draw the whole record here, as SVG")
    asked = parser.parse_args()
    names = asked.scenes.split(",")
    if unknown := [name for name in names if name not in SCENES]:
        parser.error(f"{unknown[0]!r} is no scene; there are {', '.join(SCENES)}")
    if asked.minutes < 0 or asked.streams < 1 or asked.pause <= 0 or asked.gap <= 0:
        parser.error("--minutes must not be negative, --streams at least 1, --pause and --gap above 0")
    if asked.minutes == 0 and not asked.record.exists():
        parser.error(f"{asked.record} is not there; with --minutes above 0 a run begins it")
    asked.seed = int(time.time()) if asked.seed is None else asked.seed
    asked.names = names
    return asked


def _play_all(asked: argparse.Namespace) -> int:
    record, violations = Record(asked.record), 0
    began, machine = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), f"{platform.machine()}, {os.cpu_count()} cores"
    settings = {"seed": asked.seed, "streams": asked.streams, "minutes": asked.minutes}
    record.add("run", began=began, machine=machine, commit=_commit(), **settings)
    share = 60 * asked.minutes / len(asked.names)
    with tempfile.TemporaryDirectory(prefix="soak") as scratch:
        for place, name in enumerate(asked.names):
            print(f"{name}, {share / 60:.1f} minutes, seed {asked.seed}", flush=True)
            folder = Path(scratch) / str(place)
            try:
                violations += asyncio.run(
                    play(name, folder, record, seconds=share, streams=asked.streams, pause=asked.pause, gap=asked.gap,
                         seed=asked.seed + place)
                )  # fmt: skip
            finally:
                if asked.logs is not None:
                    asked.logs.mkdir(parents=True, exist_ok=True)
                    for log in folder.glob("*.log"):
                        (asked.logs / f"{place}-{log.name}").write_bytes(log.read_bytes())
    record.close()
    return violations


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
