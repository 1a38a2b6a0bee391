"""`scripts/fuzz`: run targets for a while, tell executions and crashes, and keep the inputs of crashes."""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import Outcome, fuzz
from tests.fuzz.targets import TARGETS


def main() -> int:
    """1 where something crashed."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; none: all")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each target (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (0)")
    parser.add_argument("--crashes", type=Path, default=Path("crashes"), help="folder for inputs of crashes (crashes)")
    asked = parser.parse_args()
    unknown = [name for name in asked.targets if name not in TARGETS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no target; there are {', '.join(TARGETS)}")
    logging.disable()  # servers and libraries say much about bad input, as they should
    print(f"{'target':<18}{'executions':>12}{'refused':>10}{'lines':>8}{'found':>7}{'slowest':>10}{'crashes':>9}")
    num_crashes = 0
    for name in asked.targets or TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            outcome = fuzz(TARGETS[name](Path(folder)), seconds=asked.seconds, seed=asked.seed)
        _tell(name, outcome, asked.crashes)
        num_crashes += len(outcome.crashes)
    return 1 if num_crashes else 0


def _tell(name: str, outcome: Outcome, folder: Path) -> None:
    slowest = f"{outcome.slowest * 1e3:.1f} ms"
    print(
        f"{name:<18}{outcome.executions:>12,}{outcome.refused:>10,}{outcome.lines:>8,}{outcome.found:>7,}"
        f"{slowest:>10}{len(outcome.crashes):>9}",
        flush=True,
    )
    for number, crash in enumerate(outcome.crashes):
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}-{number}"
        path.write_bytes(crash.data)
        print(f"  {crash.what} ({path})")


if __name__ == "__main__":
    sys.exit(main())
