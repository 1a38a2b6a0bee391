"""What shared prefixes of prompts are worth: two real servers, prefix caching on and off, asked in turns.

python -m benchmarks.prefix_sharing --json benchmarks/results/prefix_sharing_x86_64.json

Chats of many users behind one system prompt; and several answers to one prompt, as one request with n or as many
requests. Every round has prompts of its own, so what is shared is computed once in each.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers.quiet import wait_until_quiet, watched
from benchmarks.peers.server_process import RunningServer, ServerCommand, running
from benchmarks.prefix_sharing.chat import ChatWorkload, run_chat
from benchmarks.prefix_sharing.samples import SampleWorkload, run_samples
from benchmarks.prefix_sharing.table import picture, tables
from quire.bench.report import this_machine
from quire.bench.vocabulary import Vocabulary
from quire.models.loading.fetch import DEFAULT_MODEL, fetch
from quire.text.load import load_tokenizer

Figures = dict[str, float]
_WARM = 1_000_000
"""The seed of prompts that warm up and never come again."""
_TEMPLATE = 128
"""Tokens that a chat's template may add, at most."""


class Sharing:
    """Measures, keeps every figure, and tells."""

    def __init__(self, model: str, threads: int, chat: ChatWorkload, samples: SampleWorkload, patience: float) -> None:
        self._model = model
        self._threads = threads
        self._chat = chat
        self._samples = samples
        self._patience = patience
        self._vocabulary = Vocabulary(load_tokenizer(fetch(model).path))
        self._chat_rounds: dict[str, list[Figures]] = {"on": [], "off": []}
        self._sample_rounds: dict[str, list[Figures]] = {"together": [], "cached": [], "separate": []}

    def run(self, rounds: int, logs: Path, on_round: Callable[[], None]) -> None:
        """The first round warms up, and is not kept."""
        with (
            running(partial(self._server, True), self._threads, logs / "caching_on.log") as on,
            running(partial(self._server, False), self._threads, logs / "caching_off.log") as off,
        ):
            for server in (on, off):
                server.first_token(self._samples.ids(self._vocabulary, _WARM)[:16])
            self._round(on, off, _WARM)
            for seed in range(1, rounds + 1):
                chats, samples = self._round(on, off, seed)
                for kept, found in ((self._chat_rounds, chats), (self._sample_rounds, samples)):
                    for name, figures in found.items():
                        kept[name].append(figures)
                on_round()

    def _round(self, on: RunningServer, off: RunningServer, seed: int) -> tuple[dict[str, Figures], dict[str, Figures]]:
        chats = {
            name: self._watched(partial(run_chat, server, self._chat, self._vocabulary, seed))
            for name, server in (("on", on), ("off", off))
        }
        samples = {
            name: self._watched(partial(self._sample, server, seed, together))
            for name, server, together in (("together", off, True), ("cached", on, False), ("separate", off, False))
        }
        return chats, samples

    def record(self) -> dict[str, Any]:
        return {
            "date": time.strftime("%Y-%m-%d"),
            "machine": this_machine(),
            "model": self._model,
            "threads": self._threads,
            "chat": {"about": str(self._chat), "workload": asdict(self._chat), "rounds": self._chat_rounds},
            "samples": {"about": str(self._samples), "workload": asdict(self._samples), "rounds": self._sample_rounds},
        }

    def _server(self, caching: bool, port: int) -> ServerCommand:
        longest = max(self._chat.system + self._chat.question + self._chat.answer, self._samples.prompt)
        sizes = {
            "--max-num-seqs": max(self._chat.at_once, self._samples.answers),
            "--max-model-len": longest + self._samples.answer + _TEMPLATE,
        }
        flag = "--enable-prefix-caching" if caching else "--no-enable-prefix-caching"
        options = [flag, *(str(part) for pair in sizes.items() for part in pair)]
        command = [sys.executable, "-m", "quire.cli.main", "serve", self._model, "--port", str(port), *options]
        return ServerCommand(command, self._model)

    def _sample(self, server: RunningServer, seed: int, together: bool) -> Any:
        return run_samples(server, self._samples, self._samples.ids(self._vocabulary, seed), together)

    def _watched(self, work: Callable[[], Any]) -> Figures:
        wait_until_quiet(patience=self._patience)
        found, others = watched(work)
        return asdict(found) | {"others": others}


def main() -> None:
    asked = _arguments()
    chat = ChatWorkload(asked.users, asked.at_once, asked.system, asked.question, asked.answer)
    samples = SampleWorkload(asked.samples, asked.system, asked.answer)
    sharing = Sharing(asked.model, asked.threads, chat, samples, asked.patience)

    def keep() -> None:
        """After every round: an interrupted run keeps those that are whole."""
        if asked.json is not None:
            asked.json.write_text(json.dumps(sharing.record(), indent=1) + "\n", encoding="utf-8")

    with TemporaryDirectory() as folder:
        sharing.run(asked.rounds, asked.logs or Path(folder), keep)
    record = sharing.record()
    print("\n".join(tables(record)))
    if asked.plot is not None:
        asked.plot.write_bytes(picture(record))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--at-once", type=int, default=8, help="users whose requests are under way")
    parser.add_argument("--system", type=int, default=1000, help="tokens of the system prompt, and of the samples'")
    parser.add_argument("--question", type=int, default=64, help="tokens of a user's message")
    parser.add_argument("--answer", type=int, default=64, help="tokens of every answer")
    parser.add_argument("--samples", type=int, default=8, help="answers to one prompt")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine before a run")
    parser.add_argument("--logs", type=Path, help="a folder for the servers' logs; without it they are thrown away")
    parser.add_argument("--json", type=Path, help="keep every figure in this file")
    parser.add_argument("--plot", type=Path, help="draw them to this PNG file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
