"""Two pipeline stages on a CPU: when each computes, and what that gains beside one process.

python -m benchmarks.pipeline_timeline smollm2 --prompts 16 --tokens 32 --json timeline.json --svg timeline.svg

Both stages have one thread each; one process with two threads does the same work with the same operations of torch
(`--cpu-compute exact`), and once more with the native core. The timeline is of the second half of the pipeline's run.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.pipeline_rank import FOLDER, Spans, read, record
from quire import LLM, SamplingParams
from quire.executor import process

Span = tuple[float, float]
_WIDTH, _HEIGHT = 1200, 40
_COLORS = ("#4477aa", "#cc6677")


def main() -> None:
    asked = _arguments()
    found: dict[str, Any] = {"model": asked.model, "prompts": asked.prompts, "tokens": asked.tokens}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        process._CHILD = "benchmarks.pipeline_rank"
        recorded = record("last")
        found["two stages, 1 thread each"] = _throughput(
            asked, cpu_threads=2, cpu_compute="exact", pipeline_parallel_size=2
        )
        own = read(recorded)
        [first] = [read(path) for path in Path(folder).glob("rank-*.jsonl")]
        found["one process, 2 threads"] = _throughput(asked, cpu_threads=2, cpu_compute="exact")
        found["one process, 2 threads, native core"] = _throughput(asked, cpu_threads=2)
    stages = [_busy(first), _busy(own)]
    begin, end = _second_half(stages)
    stages = [[(max(a, begin), min(b, end)) for a, b in spans if b > begin and a < end] for spans in stages]
    each = [sum(b - a for a, b in spans) / (end - begin) for spans in stages]
    both = _overlap(*stages) / (end - begin)
    found |= {"stage 0 busy": each[0], "stage 1 busy": each[1], "both busy at once": both, "load": os.getloadavg()[0]}
    print(json.dumps(found, indent=1))
    if asked.json is not None:
        spans = [[(a - begin, b - begin) for a, b in stage] for stage in stages]
        asked.json.write_text(json.dumps({**found, "seconds": spans}))
    if asked.svg is not None:
        asked.svg.write_text(_drawn(stages, begin, end))


def _throughput(asked: argparse.Namespace, **settings: Any) -> float:
    """Tokens a second of all prompts at once, after a first run that is not counted."""
    llm = LLM(asked.model, dtype="float32", max_model_len=512, enable_prefix_caching=False, **settings)
    prompts = [f"{number} is a number, and" for number in range(asked.prompts)]
    params = SamplingParams(temperature=0, max_tokens=asked.tokens, ignore_eos=True)
    llm.generate(prompts[:2], SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)
    begun = time.monotonic()
    llm.generate(prompts, params, use_tqdm=False)
    seconds = time.monotonic() - begun
    llm.close()
    print(f"{settings}: {asked.prompts * asked.tokens / seconds:.1f} tokens a second", file=sys.stderr, flush=True)
    return float(asked.prompts * asked.tokens / seconds)


def _busy(spans: Spans) -> list[Span]:
    """Steps, without what they wait for."""
    waits = [(begun, ended) for what, _, begun, ended in spans if what == "wait"]
    busy: list[Span] = []
    for what, _, begun, ended in spans:
        if what == "step":
            since = begun
            for wait_begun, wait_ended in waits:
                if begun <= wait_begun and wait_ended <= ended:
                    busy.append((since, wait_begun))
                    since = wait_ended
            busy.append((since, ended))
    return sorted(busy)


def _second_half(stages: list[list[Span]]) -> Span:
    end = min(spans[-1][1] for spans in stages)
    begin = max(spans[0][0] for spans in stages)
    return (begin + end) / 2, end


def _overlap(first: list[Span], second: list[Span]) -> float:
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b in first for c, d in second)


def _drawn(stages: list[list[Span]], begin: float, end: float) -> str:
    scale = _WIDTH / (end - begin)
    bars = [
        f'<rect x="{(a - begin) * scale:.1f}" y="{number * 1.5 * _HEIGHT:.0f}" width="{max(0.5, (b - a) * scale):.1f}" '
        f'height="{_HEIGHT}" fill="{_COLORS[number]}"><title>stage {number}: {1e3 * (b - a):.1f} ms</title></rect>'
        for number, spans in enumerate(stages)
        for a, b in spans
    ]
    height = int(2.5 * _HEIGHT)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="When two pipeline stages compute, over {end - begin:.1f} s">{"".join(bars)}</svg>\n'
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
