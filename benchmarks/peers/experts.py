"""What experts cost beside their bytes on a CPU: decode of a model with experts against the dense model that reads as
many bytes a token, under quire and llama.cpp, in turns.

python -m benchmarks.peers.random_gguf TOKENIZER.gguf WORK
python -m benchmarks.peers.experts --folder WORK --llama PROGRAMS --json results.json
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.cases import OFFLINE
from benchmarks.peers.contestants import Contestant, Places, of_llama, of_quire
from benchmarks.peers.quiet import wait_until_quiet, watched
from benchmarks.peers.table import Figure, lines, medians_of
from quire.bench.report import this_machine

MODELS = {"experts": "moe.Q4_0.gguf", "dense": "dense.Q4_0.gguf"}
"""As `random_gguf.py` calls them."""
CASE = OFFLINE["decode"]


def measure(contestants: dict[str, Contestant], rounds: int, patience: float) -> list[Figure]:
    """In every round each has a turn; the one before the first is not kept."""
    opened = {name: each.open(False) for name, each in contestants.items()}
    figures: list[Figure] = []
    try:
        for seed in range(rounds + 1):
            for name, each in opened.items():
                wait_until_quiet(patience=patience)
                rate, others = watched(lambda each=each, seed=seed: each.rate(CASE, seed))  # type: ignore[misc]
                if seed:
                    figures.append(Figure(name, rate, others))
    finally:
        for each in opened.values():
            each.close()
    return figures


def ratios(figures: list[Figure]) -> dict[str, float]:
    """By engine: tokens a second with experts in those of the dense model."""
    medians = medians_of(figures)
    engines = dict.fromkeys(name.partition(", ")[0] for name in medians)
    return {engine: medians[f"{engine}, experts"] / medians[f"{engine}, dense"] for engine in engines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where random_gguf.py wrote both models")
    parser.add_argument("--llama", type=Path, help="folder of llama-bench; without it llama.cpp is left out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for a quiet machine before a run")
    parser.add_argument("--json", type=Path, help="keep every figure in this file")
    asked = parser.parse_args()
    contestants: dict[str, Contestant] = {}
    for kind, name in MODELS.items():
        folder = asked.folder.absolute() / kind
        folder.mkdir(exist_ok=True)
        llama = None if asked.llama is None else asked.llama.absolute()
        places = Places(asked.folder.absolute() / name, folder, llama, None, asked.threads)
        contestants[f"quire, {kind}"] = of_quire(places)
        if llama is not None:
            contestants[f"llama.cpp, {kind}"] = of_llama(places, llama, "")
    figures = measure(contestants, asked.rounds, asked.patience)
    print("\n".join(lines(CASE.name, figures, "tok/s", {}, lower_is_better=False)))
    for engine, ratio in ratios(figures).items():
        print(f"{engine}: with experts {ratio:.2f} × the dense model of as many active bytes")
    if asked.json is not None:
        told = {"date": time.strftime("%Y-%m-%d"), "machine": this_machine(), "threads": asked.threads}
        kept = told | {"ratios": ratios(figures), "figures": [asdict(figure) for figure in figures]}
        asked.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
