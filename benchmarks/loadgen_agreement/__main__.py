"""Whether `quire bench serve` measures what an independent load generator measures: guidellm, on the same server.

python -m benchmarks.loadgen_agreement --guidellm-python build/loadgen_venv/bin/python \
    --json benchmarks/results/loadgen_agreement_x86_64.json

A real server with the real model, the same prompts for both, in turns, of which each begins every other one. The
server's prefix cache is off, so whoever comes second finds nothing in it. Both ask through a port that passes
everything on and keeps the moments it did (`wire.py`), so that what the server did to one of them can be told from what
that one made of it. With --apart the server has the first half of the machine's cores to itself, so that a generator's
own work does not slow what it measures.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.loadgen_agreement.guidellm_run import run_guidellm, version
from benchmarks.loadgen_agreement.quantities import MissingAnswers
from benchmarks.loadgen_agreement.quire_run import run_quire
from benchmarks.loadgen_agreement.table import tables
from benchmarks.loadgen_agreement.wire import Wire, wire_to
from benchmarks.loadgen_agreement.workload import Workload
from benchmarks.peers.quiet import wait_until_quiet, watched
from benchmarks.peers.server_process import ServerCommand, running
from quire.bench.report import this_machine
from quire.bench.vocabulary import Vocabulary
from quire.models.loading.fetch import DEFAULT_MODEL, fetch
from quire.text.load import load_tokenizer

_WARM_ROUND = 0


def main() -> None:
    asked = _arguments()
    workload = Workload(asked.requests, asked.at_once, asked.prompt, asked.answer)
    record: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": this_machine(),
        "model": asked.model,
        "threads": asked.threads,
        "apart": asked.apart,
        "guidellm": version(asked.guidellm_python),
        "about": str(workload),
        "workload": asdict(workload),
        "rounds": {"quire": [], "guidellm": []},
    }
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        cores = sorted(os.sched_getaffinity(0))
        if asked.apart:  # processes keep to the cores of who starts them
            os.sched_setaffinity(0, cores[: len(cores) // 2])
        with running(partial(_server, asked, workload), asked.threads, folder / "server.log") as server:
            if asked.apart:
                os.sched_setaffinity(0, cores[len(cores) // 2 :])
            server.first_token(list(range(100, 116)))
            with wire_to(server.port) as wire:
                for _ in _measured_rounds(asked, workload, server.model, wire, folder, record["rounds"]):
                    if asked.json is not None:  # an interrupted run keeps its whole rounds
                        asked.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n".join(tables(record)))


def _measured_rounds(
    asked: argparse.Namespace,
    workload: Workload,
    model: str,
    wire: Wire,
    folder: Path,
    kept: dict[str, list[dict[str, Any]]],
) -> Iterator[int]:
    """Adds to `kept` and says so, round by round. The first warms up, and is not kept."""
    vocabulary = Vocabulary(load_tokenizer(fetch(asked.model).path))
    for number in range(_WARM_ROUND, asked.rounds + 1):
        prompts = folder / "prompts.jsonl"
        workload.write(prompts, vocabulary, number)
        generators = {
            "quire": partial(run_quire, wire.url, model, prompts, workload, folder),
            "guidellm": partial(run_guidellm, asked.guidellm_python, wire.url, model, prompts, workload, folder),
        }
        found = {}
        try:
            for name, run in sorted(generators.items(), reverse=number % 2 == 0):
                wait_until_quiet(patience=asked.patience)
                figures, others = watched(run)
                passed = wire.take(workload.requests, workload.answer)
                found[name] = asdict(figures) | {"wire": asdict(passed), "others": others}
        except MissingAnswers as error:  # guidellm now and then gives one up at the end of a run
            print(f"round {number} does not count: {error}", file=sys.stderr)
            wire.exchanges.clear()
            continue
        if number != _WARM_ROUND:
            for name, each in found.items():
                kept[name].append(each)
            yield number


def _server(asked: argparse.Namespace, workload: Workload, port: int) -> ServerCommand:
    sizes = ["--max-num-seqs", str(workload.at_once), "--max-model-len", str(2 * (workload.prompt + workload.answer))]
    command = [sys.executable, "-m", "quire.cli.main", "serve", asked.model, "--port", str(port)]
    return ServerCommand([*command, *sizes, "--no-enable-prefix-caching"], asked.model)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guidellm-python", type=Path, default=Path(sys.executable), help="the Python that has it")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--apart", action="store_true", help="server and generators on cores of their own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--at-once", type=int, default=8, help="requests under way")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of every prompt")
    parser.add_argument("--answer", type=int, default=64, help="tokens of every answer")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine before a run")
    parser.add_argument("--json", type=Path, help="keep every figure in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
