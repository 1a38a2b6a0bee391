"""A record of the sharing benchmark as tables in Markdown and as a picture: medians, spreads and ratios of rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.paired import Better, middle, times_better
from quire.observe.bench_plots import PeerBars, bars_picture

Rounds = Mapping[str, Sequence[Mapping[str, float]]]
"""Figures of every round, by who was measured."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One quantity: its field, its name, its unit, what it is multiplied with, and which way is better."""

    field: str
    name: str
    unit: str
    scale: float
    better: Better


CHAT = (
    _Row("ttft", "time to first token, median of the users", "ms", 1e3, "lower"),
    _Row("e2e", "time to the last token, median", "ms", 1e3, "lower"),
    _Row("requests", "requests a second", "req/s", 1.0, "higher"),
    _Row("output", "output", "tok/s", 1.0, "higher"),
)
SAMPLES = (
    _Row("firsts", "until all answers have a first token", "ms", 1e3, "lower"),
    _Row("whole", "until the last token", "ms", 1e3, "lower"),
    _Row("output", "output", "tok/s", 1.0, "higher"),
    _Row("kv", "KV cache taken at most", "tokens", 1.0, "lower"),
)
CHAT_NAMES = {"on": "prefix caching", "off": "none"}
SAMPLE_NAMES = {
    "together": "one request, n = {answers}",
    "cached": "{answers} requests, prefix caching",
    "separate": "{answers} requests, none",
}


def tables(record: Mapping[str, Any]) -> list[str]:
    """Both tables, each with a line about what was asked."""
    chat, samples = record["chat"], record["samples"]
    rounds = len(chat["rounds"]["on"])
    cached = middle([each["cached"] for each in chat["rounds"]["on"]])
    lines = [f"{chat['about']}; {rounds} rounds. Of the prompts' tokens {cached.told(100)} % came from the cache.", ""]
    lines += _table(CHAT, chat["rounds"], CHAT_NAMES, "off")
    lines += ["", f"{samples['about']}; {len(samples['rounds']['together'])} rounds.", ""]
    return [*lines, *_table(SAMPLES, samples["rounds"], sample_names(record), "separate")]


def sample_names(record: Mapping[str, Any]) -> dict[str, str]:
    answers = record["samples"]["workload"]["answers"]
    return {key: name.format(answers=answers) for key, name in SAMPLE_NAMES.items()}


def _table(rows: Sequence[_Row], rounds: Rounds, names: Mapping[str, str], base: str) -> list[str]:
    """A column each, and for each but the base how many times better it was, round by round."""
    others = [key for key in names if key != base]
    header = ["median (spread)", *names.values(), *(f"{names[key]} is" for key in others)]
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for row in rows:
        values = {key: [each[row.field] for each in rounds[key]] for key in names}
        cells = [f"{row.name}, {row.unit}", *(middle(values[key]).told(row.scale) for key in names)]
        if all(min(values[key]) > 0 for key in names):
            cells += [f"{times_better(values[key], values[base], row.better).told()} ×" for key in others]
        else:
            cells += ["–"] * len(others)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def picture(record: Mapping[str, Any]) -> bytes:
    """First tokens and rates of both workloads."""
    chat, samples = record["chat"]["rounds"], record["samples"]["rounds"]
    panels = [_bars(CHAT[0], chat, CHAT_NAMES, "chat"), _bars(CHAT[3], chat, CHAT_NAMES, "chat")]
    names = sample_names(record)
    panels += [_bars(SAMPLES[0], samples, names, "samples"), _bars(SAMPLES[3], samples, names, "samples")]
    title = f"Shared prefixes: {record['model']}, {record['threads']} threads, {record['date']}"
    return bars_picture(title, panels)


def _bars(row: _Row, rounds: Rounds, names: Mapping[str, str], about: str) -> PeerBars:
    found = {name: middle([each[row.field] * row.scale for each in rounds[key]]) for key, name in names.items()}
    values = {name: (each.median, each.least, each.most) for name, each in found.items()}
    return PeerBars(f"{about}: {row.name}", values, row.unit)
