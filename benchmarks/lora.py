"""What LoRA adapters cost: the workloads of `gpu_workloads` with an adapter for each request, in turn.

python -m benchmarks.lora llama-8b single mixed256 --use off                       the base, started without adapters
python -m benchmarks.lora llama-8b single mixed256 --use base                      the base, started with --enable-lora
python -m benchmarks.lora llama-8b single mixed256 --adapters 16 --ranks 16
python -m benchmarks.lora llama-8b mixed256 --adapters 64 --ranks 8 16 32 64
python -m benchmarks.lora llama-8b --zipf 1000 --adapters 64 --ranks 16            more adapters than there is room for
python -m benchmarks.lora smollm2 --streams 16 --adapters 8 --ranks 16             the default model, on a CPU

A shape has random weights; adapters are random everywhere. `--zipf N` has N adapters registered, of which requests
choose by Zipf's law, with room for `--adapters` of them on the device; it tells how often an adapter was there, and how
long steps took with and without loads beside them.
"""

import argparse
import json
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.peers.workload import SHAPES, WORKLOADS, requests, write_shape
from benchmarks.random_adapters import write_adapters
from quire import LLM, LoRARequest, SamplingParams
from quire.models.loading.locate import locate

_ANSWER = 64
_PROMPT = 128


class Setup:
    """An engine and the adapters that requests take in turn."""

    def __init__(self, asked: argparse.Namespace, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings: dict[str, Any] = {}
        if asked.model in SHAPES:
            (folder / "model").mkdir()
            write_shape(asked.model, folder / "model")
            self.model = str(folder / "model")
            settings |= {"load_format": "dummy", "skip_tokenizer": True, "max_num_seqs": 256, "max_model_len": 4096}
        else:
            self.model = str(locate(asked.model))
            settings |= {"max_num_seqs": asked.streams or 256}
        self.adapters: list[LoRARequest | None] = [None]
        if asked.use == "adapters":
            count = asked.zipf or asked.adapters
            ranks = [asked.ranks[number % len(asked.ranks)] for number in range(count)]
            folders = write_adapters(self.model, folder / "adapters", ranks)
            self.adapters = [LoRARequest(each.name, number, str(each)) for number, each in enumerate(folders)]
        if asked.use != "off":
            settings |= {"enable_lora": True, "max_loras": asked.adapters, "max_lora_rank": max(asked.ranks)}
        self.llm = LLM(self.model, **settings)
        self.llm.warm_up()
        # each is read once, unless more are registered than there is room for
        for adapter in [] if asked.zipf else self.adapters:
            self.answer([[5, 6, 7]], [2], [adapter])

    def answer(self, prompts: list[list[int]], counts: list[int], adapters: list[LoRARequest | None]) -> float:
        """Seconds."""
        params = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in counts]
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        start = time.perf_counter()
        self.llm.generate(given, params, use_tqdm=False, lora_request=adapters)
        return time.perf_counter() - start

    def in_turn(self, count: int) -> list[LoRARequest | None]:
        return [self.adapters[number % len(self.adapters)] for number in range(count)]


def main() -> None:
    asked = _arguments()
    with ExitStack() as stack:
        setup = Setup(asked, stack)
        told: dict[str, Any] = {
            "model": asked.model,
            "use": asked.use,
            "adapters": asked.adapters,
            "ranks": asked.ranks,
        }
        for workload in asked.workloads:
            told[workload] = _workload(setup, workload, asked)
        if asked.streams:
            told["streams"] = _streams(setup, asked)
        if asked.zipf:
            told["zipf"] = _zipf(setup, asked)
    if asked.json is not None:
        asked.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _workload(setup: Setup, workload: str, asked: argparse.Namespace) -> list[float]:
    rates: list[float] = []
    for seed in range(asked.warmups + asked.rounds):  # seeds differ: the prefix cache must not know the prompts
        lists = requests(workload, seed)
        prompts, counts = [prompt for prompt, _ in lists], [count for _, count in lists]
        seconds = setup.answer(prompts, counts, setup.in_turn(len(lists)))
        tokens = sum(map(len, prompts)) if workload == "prefill" else sum(counts)
        if seed >= asked.warmups:
            rates.append(tokens / seconds)
    _tell(f"{asked.model} {workload}, {_used(asked)}", rates)
    return rates


def _streams(setup: Setup, asked: argparse.Namespace) -> list[float]:
    """Short prompts and long answers, so that most steps are decodes of all streams."""
    rates: list[float] = []
    for seed in range(asked.warmups + asked.rounds):
        chosen = random.Random(seed)
        prompts = [[chosen.randrange(100, 30_000) for _ in range(16)] for _ in range(asked.streams)]
        seconds = setup.answer(prompts, [_ANSWER] * asked.streams, setup.in_turn(asked.streams))
        if seed >= asked.warmups:
            rates.append(asked.streams * _ANSWER / seconds)
    _tell(f"{asked.model} {asked.streams} streams, {_used(asked)}", rates)
    return rates


def _zipf(setup: Setup, asked: argparse.Namespace) -> dict[str, float]:
    """Requests come one after the other into a running batch; every step is timed."""
    chosen = random.Random(0)
    weights = [1 / (place + 1) for place in range(len(setup.adapters))]
    engine = setup.llm._engine
    room = engine.loop.scheduler.adapters
    assert room is not None
    gaps: dict[bool, list[float]] = {False: [], True: []}
    params = SamplingParams(temperature=0, max_tokens=_ANSWER, ignore_eos=True)
    left, begun, last, loads = asked.requests, time.perf_counter(), 0.0, 0
    while left or engine.has_work:
        while left and len(engine.loop.scheduler.live_requests) < asked.concurrency:
            [adapter] = chosen.choices(setup.adapters, weights)
            engine.add([chosen.randrange(100, 30_000) for _ in range(_PROMPT)], params, adapter=adapter)
            left -= 1
        engine.step()
        now = time.perf_counter()
        if last:
            gaps[room.stats.loads != loads or room.num_waiting > 0].append(now - last)
        last, loads = now, room.stats.loads
    seconds = time.perf_counter() - begun
    found = {
        "requests": float(asked.requests),
        "tokens_per_second": asked.requests * _ANSWER / seconds,
        "hit_rate": room.stats.hits / asked.requests,
        "loads": float(room.stats.loads),
        "evictions": float(room.stats.evictions),
        "p99_step_without_loads": _p99(gaps[False]),
        "p99_step_beside_loads": _p99(gaps[True]),
    }
    print(
        f"{asked.model} zipf over {asked.zipf}: " + ", ".join(f"{name} {value:,.4g}" for name, value in found.items())
    )
    return found


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[-1] if len(seconds) > 1 else 0.0


def _used(asked: argparse.Namespace) -> str:
    if asked.use == "adapters":
        return f"{asked.adapters} adapters of ranks {', '.join(map(str, asked.ranks))}"
    return "base alone, adapters enabled" if asked.use == "base" else "base, adapters off"


def _tell(what: str, rates: list[float]) -> None:
    print(f"{what}: {median(rates):,.1f} tok/s ({min(rates):,.1f} to {max(rates):,.1f})", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help=f"one of {', '.join(SHAPES)}, or a model with weights")
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []])
    parser.add_argument("--use", choices=("off", "base", "adapters"), default="adapters")
    parser.add_argument(
        "--adapters", type=int, default=16, help="that requests take in turn, and that there is room for"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[16], help="of the adapters, in turn")
    parser.add_argument("--streams", type=int, default=0, help="so many answers at once, decoded together")
    parser.add_argument("--zipf", type=int, default=0, help="adapters that are registered, chosen by Zipf's law")
    parser.add_argument("--requests", type=int, default=2000, help="of --zipf")
    parser.add_argument("--concurrency", type=int, default=128, help="requests at once, of --zipf")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmups", type=int, default=1, help="rounds that are not kept, after warm-up")
    parser.add_argument("--json", type=Path, help="keep every figure in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
