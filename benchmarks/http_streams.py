"""Streams over HTTP from a model of a public shape with random weights, with one and with several front processes.

python -m benchmarks.http_streams qwen3-0.6b --fronts 1 4 --streams 256 1024 --json results.json

Requests come from several processes, so that reading the answers is not what is measured.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from benchmarks.peers.load import ask
from benchmarks.peers.server_process import RunningServer, ServerCommand, running
from benchmarks.peers.workload import SHAPES, write_shape

_PROMPT, _ANSWER = 128, 256
_TENTH_ASKS = "a tenth"
_TENTH = {"logprobs": 5, "repetition_penalty": 1.1, "presence_penalty": 0.5}


def main() -> None:
    asked = _arguments()
    if asked.generate:
        _generate(*asked.generate)
        return
    found = []
    kinds = ("nothing", _TENTH_ASKS) if asked.tenth else ("nothing",)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / asked.shape
        write_model(asked.shape, model)
        for fronts in asked.fronts:
            command = [sys.executable, "-m", "quire.cli.main", "serve", str(model), "--load-format", "dummy"]
            options = [
                "--api-server-count",
                str(fronts),
                "--max-num-seqs",
                "1024",
                "--store",
                f"{folder}/store{fronts}",
            ]
            make = lambda port: ServerCommand([*command, *options, "--port", str(port)], str(model))  # noqa: E731, B023
            with running(make, asked.threads, Path(folder) / "server.log") as server:
                server.first_token(list(range(1000, 1000 + _PROMPT)))
                time.sleep(asked.warm_up)
                for streams in asked.streams:
                    rounds = [
                        [_measure(server, streams, asked.generators, seed, asking) for asking in kinds]
                        for seed in range(1 + asked.rounds)
                    ]
                    for number, asking in enumerate(kinds):
                        medians = _medians([each[number] for each in rounds[1:]])
                        told = {"fronts": fronts, "streams": streams, "asking": asking, **medians}
                        found.append(told)
                        print(json.dumps(told), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"shape": asked.shape, "runs": found}, indent=1) + "\n")


def _measure(server: RunningServer, streams: int, generators: int, seed: int, asking: str) -> dict[str, float]:
    """All streams begin at once; tokens a second until the last one ended."""
    each = streams // generators
    begin = time.time() + 3.0  # all generators have started by then
    command = [sys.executable, "-m", "benchmarks.http_streams", next(iter(SHAPES)), "--generate"]
    told = [
        [*command, str(server.port), server.model, str(each), str(seed * generators + number), str(begin), asking]
        for number in range(generators)
    ]
    children = [subprocess.Popen(line, stdout=subprocess.PIPE) for line in told]
    records = [record for child in children for record in json.loads(child.communicate()[0])]
    ttft, gaps = [record["ttft"] for record in records], [gap for record in records for gap in record["gaps"]]
    return {
        "tokens_per_second": streams * _ANSWER / max(record["ended"] for record in records),
        "ttft_p50": median(ttft),
        "ttft_p99": quantiles(ttft, n=100)[98],
        "itl_p50": median(gaps),
        "itl_p99": quantiles(gaps, n=100)[98],
        "events": len(gaps) + len(ttft),
    }


def _generate(port: str, model: str, streams: str, seed: str, begin: str, asking: str) -> None:
    draw = random.Random(f"{asking} {seed}")  # no prompt twice: the prefix cache would know it
    prompts = [[draw.randint(1000, 50000) for _ in range(_PROMPT)] for _ in range(int(streams))]
    time.sleep(max(0.0, float(begin) - time.time()))
    records = ask(int(port), model, prompts, _ANSWER, _TENTH if asking == _TENTH_ASKS else None)
    wrong = [record for record in records if record.error is not None or record.output_tokens != _ANSWER]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(records)} answers are wrong, the first: {str(wrong[0])[:500]}")
    told = [{"ttft": each.ttft, "ended": each.ended, "gaps": each.itl} for each in records]
    json.dump(told, sys.stdout)


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def write_model(shape: str, folder: Path) -> None:
    """With a tokenizer of as many words as the model has tokens: answers must be made into text."""
    write_shape(shape, folder)
    size = SHAPES[shape]["vocab_size"]
    assert isinstance(size, int)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {f" word{n}": n for n in range(size)}, "unk_token": " word0"},
        "decoder": {"type": "Fuse"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--fronts", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--streams", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--generators", type=int, default=4, help="processes that send requests")
    parser.add_argument("--threads", type=int, default=4, help="of the server's own pools")
    parser.add_argument("--tenth", action="store_true", help="also with logprobs and penalties in every tenth request")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds before the first run")
    parser.add_argument("--json", type=Path, help="keep what was found in this file")
    parser.add_argument("--generate", nargs=6, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
