"""How fast streams decode at a long context, with KV in one dtype beside another.

python -m benchmarks.kv_dtypes llama-8b --streams 64 --context 16384 --dtypes bfloat16 fp8      random weights, on a GPU
python -m benchmarks.kv_dtypes smollm2 --streams 1 --context 8000 --dtypes float16 int8         the default model, a CPU

Prompts are random and computed once; the prefix cache keeps them, so that a round is decodes alone. Where memory does
not hold all streams, as many run as it holds. On a CPU rounds of all dtypes alternate; on a GPU, whose memory one
engine takes, each dtype has a process of its own.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.peers.workload import SHAPES
from quire import LLM, SamplingParams
from quire.config.kv_layout import kv_tokens

_ANSWER = 65
"""Tokens of an answer; those behind the first are timed."""
_ROOM = 128
"""Tokens of a stream beyond its prompt."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one dtype gives."""

    dtype: str
    streams: int
    tokens_of_kv: int
    bytes_per_token: int
    rates: list[float]
    """Tokens a second of all streams, round by round."""

    def __str__(self) -> str:
        rate, kib = median(self.rates), self.bytes_per_token / 1024
        spread = f"{min(self.rates):,.1f} to {max(self.rates):,.1f}"
        return (
            f"{self.dtype:>10}: {rate:9,.1f} tok/s ({spread}) of {self.streams} streams; KV of {kib:.4g} KiB a token, "
            f"{self.tokens_of_kv:,} tokens fit"
        )


class Streams:
    """An engine whose prefix cache holds the streams' prompts."""

    def __init__(self, model: str, dtype: str, asked: argparse.Namespace) -> None:
        dummy = {"load_format": "dummy", "skip_tokenizer": True} if asked.model in SHAPES else {}
        limits = {"max_num_seqs": asked.streams, "max_model_len": asked.context + _ROOM}
        self._llm = LLM(model, kv_cache_dtype=dtype, **limits, **dummy)
        self.kv = self._llm._engine.resolved.kv
        self.count = min(asked.streams, kv_tokens(self.kv) // (asked.context + _ROOM))
        self._prompts = [_prompt(stream, asked.context) for stream in range(self.count)]
        self._llm.warm_up()
        self.seconds(1)

    def seconds(self, tokens: int) -> float:
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        begin = time.perf_counter()
        self._llm.generate([{"prompt_token_ids": prompt} for prompt in self._prompts], params, use_tqdm=False)
        return time.perf_counter() - begin

    def rate(self) -> float:
        first = self.seconds(1)
        return self.count * (_ANSWER - 1) / (self.seconds(_ANSWER) - first)

    def close(self) -> None:
        self._llm.close()


def _prompt(stream: int, length: int) -> list[int]:
    draw = random.Random(stream)
    return [draw.randint(1000, 40000) for _ in range(length)]


def measure(asked: argparse.Namespace, dtypes: list[str]) -> list[Measured]:
    """All in this process, round by round."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        model = asked.model
        if asked.model in SHAPES:
            config = SHAPES[asked.model] | {"max_position_embeddings": asked.context + _ROOM}
            (Path(folder) / "config.json").write_text(json.dumps(config))
            model = folder
        engines = {dtype: Streams(model, dtype, asked) for dtype in dtypes}
        for engine in engines.values():
            closing.callback(engine.close)
        rates = [{dtype: engine.rate() for dtype, engine in engines.items()} for _ in range(asked.rounds)]
        return [
            Measured(
                dtype, engine.count, kv_tokens(engine.kv), engine.kv.bytes_per_token, [rate[dtype] for rate in rates]
            )
            for dtype, engine in engines.items()
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help=f"a model, or random weights in the shape of {', '.join(SHAPES)}")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--context", type=int, default=16384)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "fp8"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="add a line for each dtype to this file")
    asked = parser.parse_args()
    if len(asked.dtypes) > 1 and _has_gpu():
        measured = [found for dtype in asked.dtypes for found in _in_a_process(asked, dtype)]
    else:
        measured = measure(asked, asked.dtypes)
    for found in measured:
        print(found, flush=True)
        if asked.json is not None:
            with asked.json.open("a") as file:
                file.write(json.dumps({name: getattr(found, name) for name in Measured.__slots__}) + "\n")
    first = median(measured[0].rates)
    for found in measured[1:]:
        print(f"{found.dtype} over {measured[0].dtype}: {median(found.rates) / first:.2f} times the rate")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _in_a_process(asked: argparse.Namespace, dtype: str) -> list[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        numbers = [f"--{name}={getattr(asked, name)}" for name in ("streams", "context", "rounds")]
        command = [sys.executable, "-m", "benchmarks.kv_dtypes", asked.model, *numbers]
        subprocess.run([*command, "--dtypes", dtype, "--json", str(results)], check=True)
        return [Measured(**json.loads(line)) for line in results.read_text().splitlines()]


if __name__ == "__main__":
    main()
