"""quire beside its peers on one machine: rounds in which everyone has a turn; then medians, ratios, shares of limits.

python -m benchmarks.peers.compare --gguf FILE --folder WORK --llama PROGRAMS --vllm-python PYTHON --json results.json
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.cases import OFFLINE, SERVERS, SHARED, Case
from benchmarks.peers.contestants import Contestant, Opened, Places, all_contestants
from benchmarks.peers.limits import Limits, measure
from benchmarks.peers.model_work import ModelWork, read_work
from benchmarks.peers.plot import draw
from benchmarks.peers.quiet import wait_until_quiet, watched
from benchmarks.peers.server_run import ServerFigures, run_server
from benchmarks.peers.table import Figure, limit_share, lines, medians_of
from quire.bench.report import this_machine

_SERVER_VALUES = {
    # what is read from a server's life: title, unit, whether less is better, and by what it is multiplied
    "output_rate": ("output", "tok/s", False, 1.0),
    "median_ttft": ("median TTFT", "ms", True, 1e3),
    "single_ttft": ("TTFT of one prompt alone", "ms", True, 1e3),
    "start_to_first_token": ("start to first token", "s", True, 1.0),
    "rss": ("memory (RSS, all processes)", "MiB", True, 1 / 2**20),
    "pss": ("memory (PSS, all processes)", "MiB", True, 1 / 2**20),
}


class Comparison:
    """Measures, keeps every figure, and prints."""

    def __init__(
        self,
        contestants: list[Contestant],
        work: ModelWork,
        limits: Limits,
        threads: int,
        patience: float,
        record: Path | None,
    ) -> None:
        self._contestants = contestants
        self._work = work
        self._limits = limits
        self._threads = threads
        self._patience = patience
        self._record = record
        self._kept: dict[str, list[Figure]] = {}
        self._shares: dict[str, dict[str, float]] = {}
        """Of the machine's limit, by case and contestant."""

    def offline(self, cases: list[Case], rounds: int, prefixes: bool = False) -> None:
        opened = {contestant.name: contestant.open(prefixes) for contestant in self._contestants}
        try:
            for case in cases:
                for name, each in opened.items():
                    self._rate(name, each, case, seed=0)  # warms up, and is not kept
                self._kept[case.name] = [
                    self._rate(name, each, case, seed) for seed in range(1, rounds + 1) for name, each in opened.items()
                ]
                self._print_rates(case)
                self._write_record()
        finally:
            for each in opened.values():
                each.close()

    def servers(self, cases: list[Case], rounds: int, logs: Path) -> None:
        for case in cases:
            lives: list[tuple[str, ServerFigures, float]] = []
            for seed in range(1, rounds + 1):
                lives += [self._life(each, case, logs, seed) for each in self._contestants if each.server]
            for field, (title, unit, less, factor) in _SERVER_VALUES.items():
                figures = [Figure(name, getattr(life, field) * factor, others) for name, life, others in lives]
                self._kept[f"{case.name}, {title}"] = figures
                print("\n".join(lines(f"{case.name}, {title}", figures, unit, {}, less)), flush=True)
            self._write_record()

    def _rate(self, name: str, opened: Opened, case: Case, seed: int) -> Figure:
        wait_until_quiet(patience=self._patience)
        rate, others = watched(lambda: opened.rate(case, seed))
        return Figure(name, rate, others)

    def _life(self, contestant: Contestant, case: Case, logs: Path, seed: int) -> tuple[str, ServerFigures, float]:
        make = contestant.server
        assert make is not None
        wait_until_quiet(patience=self._patience)
        log = logs / f"server_{contestant.name.replace(' ', '_')}.log"
        life, others = watched(lambda: run_server(lambda port: make(case, port), case, self._threads, log, seed))
        return contestant.name, life, others

    def _print_rates(self, case: Case) -> None:
        figures = self._kept[case.name]
        cost = {contestant.name: contestant.bytes_per_token for contestant in self._contestants}
        shares = self._shares[case.name] = {
            name: limit_share(case, rate, cost[name], self._work, self._limits)
            for name, rate in medians_of(figures).items()
        }
        print("\n".join(lines(case.name, figures, "tok/s", shares, lower_is_better=False)), flush=True)

    def _write_record(self) -> None:
        """Every figure so far, for whoever wants other statistics; an interrupted run keeps its finished cases."""
        if self._record is None:
            return
        told = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": this_machine(),
            "threads": self._threads,
            "limits": asdict(self._limits),
            "shares": self._shares,
            "figures": {name: [asdict(figure) for figure in kept] for name, kept in self._kept.items()},
        }
        self._record.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    asked = _arguments()
    asked.folder.mkdir(parents=True, exist_ok=True)
    work = read_work(asked.gguf)
    wait_until_quiet(patience=asked.patience)
    limits = measure(asked.threads, work.file_bytes)
    print(f"{asked.gguf.name}: {work.file_bytes / 1e6:.1f} MB a token; {asked.threads} threads. The machine {limits}.")
    places = Places(asked.gguf, asked.folder, asked.llama, asked.vllm_python, asked.threads)
    everyone = all_contestants(places)
    if unknown := set(asked.only or ()) - set(everyone):
        raise SystemExit(f"--only has {', '.join(sorted(unknown))}; there are {', '.join(everyone)}")
    contestants = [each for name, each in everyone.items() if not asked.only or name in asked.only]
    comparison = Comparison(contestants, work, limits, asked.threads, asked.patience, asked.json)
    chosen = asked.cases or [*OFFLINE, *SHARED, *SERVERS]
    if offline := [OFFLINE[name] for name in chosen if name in OFFLINE]:
        comparison.offline(offline, asked.rounds)
    if shared := [SHARED[name] for name in chosen if name in SHARED]:
        comparison.offline(shared, asked.rounds, prefixes=True)
    if servers := [SERVERS[name] for name in chosen if name in SERVERS]:
        comparison.servers(servers, asked.rounds, asked.folder)
    if asked.plot is not None:
        draw(asked.json, asked.plot)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=Path, required=True, help="the model file that everyone runs")
    parser.add_argument("--folder", type=Path, required=True, help="for files made on the way, and logs")
    parser.add_argument("--llama", type=Path, help="folder of llama-bench and the others; without it they are left out")
    parser.add_argument("--vllm-python", type=Path, help="the Python that has vLLM; without it vLLM is left out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="*", choices=[*OFFLINE, *SHARED, *SERVERS], help="all of them unless given")
    parser.add_argument("--only", nargs="*", help="names of contestants, as the tables print them")
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for a quiet machine before a run")
    parser.add_argument("--json", type=Path, help="keep every figure in this file")
    parser.add_argument("--plot", type=Path, help="with --json: draw the rates to this PNG file")
    asked = parser.parse_args()
    if asked.plot is not None and asked.json is None:
        parser.error("--plot draws what --json keeps; give both")
    for name in ("gguf", "folder", "llama", "vllm_python"):  # children run in the repository's root
        if getattr(asked, name) is not None:
            setattr(asked, name, getattr(asked, name).absolute())
    return asked


if __name__ == "__main__":
    main()
