"""Speculative decoding: what a step costs that verifies drafts, and how much sooner answers come.

python -m benchmarks.speculation step llama-8b --batch 1 32 --context 512
python -m benchmarks.speculation answers model.gguf --config '{"method": "ngram"}' --streams 1 4 16 64 --task rewrite

`step` times decode steps of random weights with drafts in every row and without, in turn. `answers` runs the same
prompts with a config and without, in turn, each with an engine of its own that stays: `rewrite` asks for a file once
more with one change, `chat` for something new, `repeat` asks the rewriting again and again, and `json` asks for records
by a schema. It says whether the texts are the same.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.http_streams import write_model
from benchmarks.peers.workload import SHAPES

_FILE = '''class Account:
    """Money of one customer."""

    def __init__(self, owner: str, balance: float = 0.0) -> None:
        self.owner = owner
        self.balance = balance
        self.history: list[tuple[str, float]] = []

    def deposit(self, amount: float) -> None:
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount: float) -> None:
        if amount <= 0:
            raise ValueError("amount must be positive")
        if amount > self.balance:
            raise ValueError("not enough money")
        self.balance -= amount
        self.history.append(("withdraw", amount))

    def transfer(self, other: "Account", amount: float) -> None:
        self.withdraw(amount)
        other.deposit(amount)
'''
_TASKS = {
    "rewrite": [
        f"Rewrite this file with one change: rename the attribute balance to {name}. Answer with the file only.\n\n"
        f"```python\n{_FILE}```"
        for name in ("funds", "amount_left", "money", "credit", "saldo", "total", "cash", "worth")
    ],
    "chat": [
        f"Write a Python function that {task}. Answer with the code only."
        for task in (
            "merges two sorted lists",
            "finds all primes below n with a sieve",
            "parses an ISO date without libraries",
            "computes the edit distance of two strings",
            "rotates a matrix by 90 degrees",
            "evaluates a postfix expression",
            "finds the longest common prefix of strings",
            "groups words that are anagrams",
        )
    ],
}


_RECORDS = "; ".join(
    f"{name} is {age} years old and lives in {city}"
    for name, age, city in (
        ("Ada", 36, "London"),
        ("Kurt", 41, "Vienna"),
        ("Emmy", 53, "Erlangen"),
        ("Alan", 29, "Manchester"),
    )
)
_TASKS["json"] = [
    f"Write these people as JSON, with their names, ages and cities, in {order} order: {_RECORDS}."
    for order in ("this", "the opposite", "alphabetical", "any", "random", "the same", "another", "your own")
]
_SCHEMA = {
    "type": "object",
    "properties": {
        "people": {
            "type": "array",
            "minItems": 4,
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 20},
                    "age": {"type": "integer", "minimum": 0, "maximum": 150},
                    "city": {"type": "string", "maxLength": 20},
                },
                "required": ["name", "age", "city"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["people"],
    "additionalProperties": False,
}


def main() -> None:
    asked = _arguments()
    found = list(_steps(asked) if asked.what == "step" else _answers(asked))
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def _steps(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from quire.config.engine import EngineConfig
    from quire.config.resolve import resolve
    from quire.models.loading.header import read_model_facts
    from quire.worker.device import device_facts, this_device
    from quire.worker.start import start_worker

    with TemporaryDirectory() as folder:
        path = Path(folder) / asked.model
        write_model(asked.model, path)
        config = EngineConfig.from_flat(
            model=str(path),
            load_format="dummy",
            max_model_len=asked.context + 2 * asked.steps * (1 + asked.drafts) + 64,
            max_num_seqs=max(asked.batch),
            speculative_config={"method": "ngram", "num_speculative_tokens": asked.drafts},
        )
        device = this_device()
        resolved = resolve(config, read_model_facts(str(path)), device_facts(device))
        worker = start_worker(path, resolved, device=device)
        for batch in asked.batch:
            seconds = _time_steps(worker, resolved.kv, batch, asked)
            with_drafts, without = median(seconds[asked.drafts]), median(seconds[0])
            told = {"batch": batch, "drafts": asked.drafts, "with": with_drafts, "without": without}
            ratio = with_drafts / without
            print(f"batch {batch}: {1e3 * without:.3f} ms without, {1e3 * with_drafts:.3f} ms with, {ratio:.3f} times")
            yield told | {"ratio": ratio}


def _time_steps(worker: Any, layout: Any, batch: int, asked: argparse.Namespace) -> dict[int, list[float]]:
    """Seconds of steps by number of drafts, in turn, behind a few that warm up."""
    from quire.core.plan import StepPlan
    from quire.worker.dummy import dummy_sequence

    rows = list(range(batch))
    for row in rows:
        admitted = [dummy_sequence(row, asked.context, layout)]
        worker.start(StepPlan(step=0, admitted=admitted, rows=[row], counts=[asked.context], num_sampling=1)).result()
    seconds: dict[int, list[float]] = {0: [], asked.drafts: []}
    for number in range(asked.steps + 3):
        for drafts, times in seconds.items():
            plan = StepPlan(
                step=0,
                rows=rows,
                counts=[1 + drafts] * batch,
                num_sampling=batch,
                num_drafts=[drafts] * batch if drafts else [],
            )
            elapsed = worker.start(plan).result().elapsed
            if number >= 3:  # the first compiles and the second captures
                times.append(elapsed)
    worker.start(StepPlan(step=0, released=rows))
    return seconds


def _answers(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from quire import LLM, SamplingParams

    settings: dict[str, Any] = {"max_num_seqs": max(asked.streams), "max_model_len": 2048} | json.loads(asked.settings)
    plain = LLM(asked.model, **settings)
    drafting = LLM(asked.model, speculative_config=json.loads(asked.config), **settings)
    schema = _SCHEMA if asked.task == "json" else None
    params = SamplingParams(temperature=asked.temperature, max_tokens=asked.tokens, seed=1, structured=schema)

    def run(llm: LLM, messages: list[Any]) -> tuple[float, int, list[str]]:
        begun = time.perf_counter()
        outputs = llm.chat(messages, params, use_tqdm=False)
        seconds = time.perf_counter() - begun
        return (
            seconds,
            sum(len(each.outputs[0].token_ids) for each in outputs),
            [each.outputs[0].text for each in outputs],
        )

    for streams in asked.streams:
        prompts = _prompts(asked.task, streams)
        yield _compare(
            lambda prompts=prompts: (run(plain, prompts), run(drafting, prompts)), streams, asked.rounds, drafting
        )  # type: ignore[misc]


def _prompts(task: str, count: int) -> list[Any]:
    texts = _TASKS["rewrite" if task == "repeat" else task]
    return [
        [{"role": "user", "content": texts[0 if task == "repeat" else number % len(texts)]}] for number in range(count)
    ]


def _compare(run: Callable[[], Any], streams: int, rounds: int, drafting: Any) -> dict[str, Any]:
    run()  # warms up, and shows one answer to whoever remembers answers
    before = drafting._engine.drafts
    times = [run() for _ in range(rounds)]
    drafts = drafting._engine.drafts - before
    rates = [[count / seconds for seconds, count, _ in pair] for pair in times]
    without, with_drafts = (median(rate[place] for rate in rates) for place in (0, 1))
    same = all(pair[0][2] == pair[1][2] for pair in times)
    print(
        f"{streams} streams: {without:.1f} tok/s without, {with_drafts:.1f} with ({with_drafts / without:.2f} times), "
        f"{drafts.mean_accepted:.2f} of {drafts.tokens / max(1, drafts.drafts):.2f} drafts right, texts "
        f"{'the same' if same else 'DIFFERENT'}",
        flush=True,
    )
    found = {"streams": streams, "without": without, "with": with_drafts, "ratio": with_drafts / without, "same": same}
    return found | {"mean_accepted": drafts.mean_accepted, "share_accepted": drafts.share_accepted}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="keep what was found in this file")
    commands = parser.add_subparsers(dest="what", required=True)
    step = commands.add_parser("step")
    step.add_argument("model", choices=SHAPES)
    step.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    step.add_argument("--drafts", type=int, default=4)
    step.add_argument("--context", type=int, default=512)
    step.add_argument("--steps", type=int, default=50)
    answers = commands.add_parser("answers")
    answers.add_argument("model")
    answers.add_argument("--config", default='{"method": "ngram"}')
    answers.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    answers.add_argument("--task", choices=[*_TASKS, "repeat"], default="rewrite")
    answers.add_argument("--tokens", type=int, default=256)
    answers.add_argument("--rounds", type=int, default=3)
    answers.add_argument("--temperature", type=float, default=0.0)
    answers.add_argument("--settings", default="{}", help="more of LLM's, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
