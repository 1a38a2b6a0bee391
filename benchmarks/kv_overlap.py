"""KV that is sent beside steps: a timeline of an engine that computes a long prompt while another one fetches it.

    python -m benchmarks.kv_overlap --tokens 4096 --svg overlap.svg --json overlap.json [--carrier unix|tcp]

One engine computes the prompt chunk by chunk (--chunk tokens each). After every chunk its full blocks go to the other
engine, which only fetches. Both are in this process; threads carry the bytes. On a GPU (the same command) blocks leave
the device on a stream of their own. The JSON is in Chrome's trace format: chrome://tracing and Perfetto show it.
"""

import argparse
import json
import secrets
import tempfile
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from random import Random
from threading import Event, Thread

from quire.config.engine import EngineConfig
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.engine.start import start_loop
from quire.engine.start_exchange import start_exchange
from quire.models.loading.locate import locate

_WIDTH, _ROW, _LEFT = 960, 34, 90
_COLOURS = {"steps": "#1f6fb4", "sends": "#d9661f"}


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time, in seconds from the start."""

    track: str
    name: str
    begin: float
    end: float


def overlapped(spans: list[Span]) -> float:
    """The share of the seconds of sends during which a step ran."""
    steps = [span for span in spans if span.track == "steps"]
    sends = [span for span in spans if span.track == "sends"]
    beside = sum(max(0.0, min(send.end, step.end) - max(send.begin, step.begin)) for send in sends for step in steps)
    total = sum(send.end - send.begin for send in sends)
    return beside / total if total else 0.0


def record(model: str, tokens: int, chunk: int, carrier: str) -> tuple[list[Span], dict[str, float]]:
    """Compute a random prompt in one engine and fetch it in another."""
    path, secret, spans = locate(model), secrets.token_bytes(32), list[Span]()
    blocks = tokens // 16 + 64
    config = EngineConfig.from_flat(
        model=model, max_num_batched_tokens=chunk, max_model_len=tokens + 64, num_gpu_blocks_override=blocks
    )
    with tempfile.TemporaryDirectory() as folder:
        computing, fetching = start_loop(config, path), start_loop(config, path)
        listen = [f"unix://{folder}/{n}" if carrier == "unix" else "tcp://127.0.0.1:0" for n in range(2)]
        source = start_exchange(computing, path, listen[0], secret, lambda: None)
        target = start_exchange(fetching, path, listen[1], secret, lambda: None)
        noise = Random(3)
        prompt = Prompt(tuple(noise.randrange(10, computing.facts.spec.vocab_size) for _ in range(tokens)))
        params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False)
        request = Request(id="r", prompt=prompt, params=params)
        start = time.perf_counter()
        source.sender.counts.watcher = lambda begin, end, size: spans.append(
            Span("sends", f"{size / 1e6:.2f} MB", begin - start, end - start)
        )
        target.pull(request, source.sender.address, is_computing=True)
        is_over = Event()

        def fetch() -> None:
            while not is_over.is_set():
                target.advance(fetching.loop.figures)
                time.sleep(0.001)

        thread = Thread(target=fetch)
        thread.start()
        try:
            computing.loop.add(request)
            while computing.loop.has_work:
                source.advance(computing.loop.figures)
                begin = time.perf_counter()
                computing.loop.step()
                spans.append(Span("steps", f"step {len(spans)}", begin - start, time.perf_counter() - start))
            computed = time.perf_counter() - start
            wanted = tokens // 16
            while target.fetcher.counts.blocks < wanted and time.perf_counter() - start < computed + 60:
                source.advance(computing.loop.figures)
                time.sleep(0.0005)
            arrived = time.perf_counter() - start
        finally:
            is_over.set()
            thread.join()
        told = {
            "tokens": tokens,
            "blocks": target.fetcher.counts.blocks,
            "bytes": target.fetcher.counts.bytes,
            "computed_after_s": computed,
            "all_there_after_s": arrived,
            "sending_s": source.sender.counts.seconds,
            "sent_beside_steps": overlapped(spans),
        }
        for exchange, loop in ((source, computing), (target, fetching)):
            exchange.close()
            loop.loop.close()
    return sorted(spans, key=lambda span: span.begin), told


def trace_events(spans: list[Span]) -> list[dict[str, object]]:
    """As chrome://tracing reads them."""
    return [
        {"name": span.name, "ph": "X", "pid": 1, "tid": span.track, "ts": span.begin * 1e6}
        | {"dur": (span.end - span.begin) * 1e6}
        for span in spans
    ]


def drawn(spans: list[Span]) -> str:
    """Steps above, sends below, over the same time."""
    end = max(span.end for span in spans)
    parts = []
    for place, track in enumerate(("steps", "sends")):
        top = 20 + place * _ROW
        parts.append(f'<text x="4" y="{top + 15}">{track}</text>')
        for span in (each for each in spans if each.track == track):
            left = _LEFT + span.begin / end * (_WIDTH - _LEFT - 10)
            width = max(0.8, (span.end - span.begin) / end * (_WIDTH - _LEFT - 10))
            title = f"{span.name}: {1e3 * span.begin:.1f} to {1e3 * span.end:.1f} ms"
            parts.append(
                f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="20" fill="{_COLOURS[track]}" '
                f'stroke="#fff" stroke-width="0.4"><title>{escape(title)}</title></rect>'
            )
    height = 20 + 2 * _ROW + 16
    parts.append(f'<text x="{_LEFT}" y="{height - 4}">0</text>')
    parts.append(f'<text x="{_WIDTH - 10}" y="{height - 4}" text-anchor="end">{end:.2f} s</text>')
    style = "text{font:12px sans-serif;fill:#555}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"><style>{style}</style>'
        f"{''.join(parts)}</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--carrier", choices=("unix", "tcp"), default="unix", help="shared memory, or TCP")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    spans, told = record(asked.model, asked.tokens, asked.chunk, asked.carrier)
    if asked.svg is not None:
        asked.svg.write_text(drawn(spans), encoding="utf-8")
    if asked.json is not None:
        text = json.dumps({"traceEvents": trace_events(spans), "otherData": told})
        asked.json.write_text(text, encoding="utf-8")
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
