"""What LoRA adapters cost: the workloads of `gpu_workloads` with an adapter for each request, in turn.

python -m benchmarks.lora llama-8b single mixed256 --use off                       the base, started without adapters
python -m benchmarks.lora llama-8b single mixed256 --use base                      the base, started with --enable-lora
python -m benchmarks.lora llama-8b single mixed256 --adapters 16 --ranks 16
python -m benchmarks.lora llama-8b mixed256 --adapters 64 --ranks 8 16 32 64
python -m benchmarks.lora llama-8b --zipf 1000 --adapters 64 --ranks 16            more adapters than there is room for
python -m benchmarks.lora smollm2 --streams 16 --adapters 8 --ranks 16             the default model, on a CPU

A shape has random weights; adapters are random everywhere. `--zipf N` has N adapters registered, of which requests
choose by Zipf's law, with room for `--adapters` of them on the device. It tells how often an adapter was there, and the
gaps between tokens of requests whose adapter was there when they came; then those of as many requests that choose among
the adapters on the device alone, so that nothing is loaded.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Traffic:
    """How requests fared that came one after the other into a running batch."""

    seconds: float
    requests: int
    failed: int
    loads: int
    evictions: int
    there: int
    """Requests whose adapter was on the device when they came."""
    gaps: list[float]
    """Seconds between tokens of these."""

    @property
    def figures(self) -> dict[str, float]:
        hundredths = quantiles(self.gaps, n=100) if len(self.gaps) > 1 else [0.0] * 99
        return {
            "requests": self.requests,
            "failed": self.failed,
            "tokens_per_second": self.requests * _ANSWER / self.seconds,
            "hit_rate": self.there / self.requests,
            "loads": self.loads,
            "evictions": self.evictions,
            "p50_gap_ms": hundredths[49] * 1e3,
            "p99_gap_ms": hundredths[98] * 1e3,
        }


def _zipf(setup: Setup, asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The same engine without loads, and then with them."""
    for adapter in setup.adapters:
        assert adapter is not None
        setup.llm._engine._adapter(adapter)  # checked and known by name, as a server's are when it starts
    resident = setup.adapters[: asked.adapters]
    for adapter in resident:
        setup.answer([[5, 6, 7]], [2], [adapter])
    _traffic(setup, resident, 2 * asked.concurrency, asked.concurrency, seed=0)  # whatever compiles, compiles here
    found = {
        "without_loads": _traffic(setup, resident, asked.requests, asked.concurrency, seed=1).figures,
        "with_loads": _traffic(setup, setup.adapters, asked.requests, asked.concurrency, seed=2).figures,
    }
    assert not found["without_loads"]["loads"], "they were on the device before"
    for name, figures in found.items():
        told = ", ".join(f"{what} {value:,.4g}" for what, value in figures.items())
        print(f"{asked.model} zipf over {asked.zipf}, {name}: {told}", flush=True)
    ratio = found["with_loads"]["p99_gap_ms"] / found["without_loads"]["p99_gap_ms"]
    print(f"p99 gap with loads over that without: {ratio:.2f}", flush=True)
    return found


def _traffic(
    setup: Setup, adapters: Sequence[LoRARequest | None], requests: int, concurrency: int, seed: int
) -> Traffic:
    """Requests choose among adapters by Zipf's law. Seeds differ: the prefix cache must not know the prompts."""
    chosen = random.Random(seed)
    weights = [1 / (place + 1) for place in range(len(adapters))]
    params = SamplingParams(temperature=0, max_tokens=_ANSWER, ignore_eos=True)
    engine, loop = setup.llm._engine, setup.llm._engine.loop
    room = loop.scheduler.adapters
    assert room is not None
    loads, evictions = room.stats.loads, room.stats.evictions
    last: dict[str, float | None] = {}  # by request whose adapter was there: when its last token came
    gaps: list[float] = []
    left, failed, begun = requests, 0, time.perf_counter()
    while left or loop.has_work:
        while left and len(loop.scheduler.live_requests) < concurrency:
            [adapter] = chosen.choices(adapters, weights)
            name = engine.add([chosen.randrange(100, 30_000) for _ in range(_PROMPT)], params, adapter=adapter)
            if room.is_granted(name):
                last[name] = None
            left -= 1
        update, ended = loop.step()
        now = time.perf_counter()
        failed += sum(seq.failure is not None for seq in ended)
        for name in (seq.request.id for seq in update.sequences if seq.request.id in last):
            before, last[name] = last[name], now
            if before is not None:
                gaps.append(now - before)
    seconds = time.perf_counter() - begun
    loads, evictions = room.stats.loads - loads, room.stats.evictions - evictions
    return Traffic(seconds, requests, failed, loads, evictions, len(last), gaps)


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
