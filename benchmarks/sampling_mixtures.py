"""What ways to sample cost: decode throughput where one request of a batch asks for something, or all do.

python -m benchmarks.sampling_mixtures qwen3-0.6b --json benchmarks/results/sampling_qwen3_0.6b_h200.json
python -m benchmarks.sampling_mixtures --cpu smollm2 --json benchmarks/results/sampling_smollm2_x86_64.json

A shape has random weights and is timed by the clock. With --cpu a model with weights runs on one thread, and what is
timed is the processor, which others on the machine disturb least.
"""

import argparse
import json
import random
import string
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from benchmarks.peers.workload import SHAPES, write_shape


@dataclass(frozen=True, slots=True)
class Work:
    """What a case asks for, and the clock it is measured with, in seconds."""

    streams: int
    prompt: int
    answer: int
    long_prompt: int
    long_prompts: int
    clock: Callable[[], float]


ON_GPU = Work(streams=128, prompt=128, answer=256, long_prompt=2048, long_prompts=32, clock=time.perf_counter)
ON_CPU = Work(streams=16, prompt=32, answer=128, long_prompt=512, long_prompts=4, clock=time.process_time)
_SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "string"}, "minItems": 200}},
    "required": ["items"],
    "additionalProperties": False,
}

ONE: dict[str, dict[str, Any]] = {
    "penalty": {"presence_penalty": 0.5},
    "logprobs=5": {"logprobs": 5},
    "bias": {"logit_bias": {5: 1.0, 9: -1.0}},
    "bad words": {"bad_words": ("never", "ever again")},
    "JSON schema": {"structured": _SCHEMA},
}
"""What one request of the batch asks for."""
ALL: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.0},
    "top-p 0.9": {"temperature": 1.0, "top_p": 0.9},
    "top-k 50 + top-p 0.9": {"temperature": 1.0, "top_k": 50, "top_p": 0.9},
    "repetition + presence": {"repetition_penalty": 1.1, "presence_penalty": 0.5},
    "logprobs=5": {"logprobs": 5},
}
"""What all of them ask for."""


def main() -> None:
    asked = _arguments()
    from quire import LLM

    if asked.cpu is not None:
        llm = LLM(asked.cpu, max_num_seqs=16, max_model_len=1024, cpu_threads=1, enable_prefix_caching=False)
        rates = _measure(llm, ON_CPU, asked.rounds)
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_shape(asked.shape, Path(folder))
            _write_tokenizer(Path(folder))
            llm = LLM(folder, load_format="dummy", max_num_seqs=256, max_model_len=4096)
            llm.warm_up()
            rates = _measure(llm, ON_GPU, asked.rounds)
    model = asked.cpu or asked.shape
    for name, found in rates.items():
        base = rates["prefill" if name.startswith("prefill") else "all greedy"]
        share = median(found) / median(base)
        print(f"{model} {name}: {median(found):,.0f} tok/s ({min(found):,.0f}–{max(found):,.0f}), {share:.3f} ×")
    if asked.json is not None:
        asked.json.write_text(json.dumps({"shape": model, "rates": rates}, indent=1) + "\n")


def _measure(llm: Any, work: Work, rounds: int) -> dict[str, list[float]]:
    """Tokens a second of every case, in interleaved rounds; the first is not kept."""
    cases = {"all greedy": lambda seed: _decode(llm, work, seed, {}, 0)}
    until_half = {"min_tokens": work.answer // 2, "stop_token_ids": (7,)}
    cases |= {f"one: {name}": _bound(llm, work, wish, 1) for name, wish in (ONE | {"min_tokens": until_half}).items()}
    cases |= {f"all: {name}": _bound(llm, work, wish, work.streams) for name, wish in ALL.items()}
    cases["prefill"] = lambda seed: _prefill(llm, work, seed, {})
    cases["prefill: prompt_logprobs=1"] = lambda seed: _prefill(llm, work, seed, {"prompt_logprobs": 1})
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for seed in range(1 + rounds):
        for number, (name, run) in enumerate(cases.items()):
            rate = run(1000 * seed + number)
            if seed:
                rates[name].append(rate)
    return rates


def _write_tokenizer(folder: Path) -> None:
    """Bytes, and as many words as the model has tokens: masks of grammars take as long as those of real models."""
    size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    letters, draw = sorted(pre_tokenizers.ByteLevel.alphabet()), random.Random(0)
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    while len(vocabulary) < size:
        word = "".join(draw.choices(string.ascii_letters, k=draw.randint(2, 9)))
        vocabulary.setdefault(draw.choice(("", "\u0120")) + word, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")


def _bound(llm: Any, work: Work, wish: dict[str, Any], count: int) -> Any:
    return lambda seed: _decode(llm, work, seed, wish, count)


def _decode(llm: Any, work: Work, seed: int, wish: dict[str, Any], count: int) -> float:
    """Tokens a second of answers, of which `count` are asked for with this wish."""
    from quire import SamplingParams

    usual = {"temperature": 0.0, "max_tokens": work.answer, "ignore_eos": True}
    params = [SamplingParams(**(usual | (wish if number < count else {}))) for number in range(work.streams)]
    return _run(llm, work, _prompts(seed, work.streams, work.prompt), params, of_prompts=False)


def _prefill(llm: Any, work: Work, seed: int, wish: dict[str, Any]) -> float:
    """Tokens a second of prompts."""
    from quire import SamplingParams

    params = [SamplingParams(temperature=0.0, max_tokens=1, **wish)] * work.long_prompts
    return _run(llm, work, _prompts(seed, work.long_prompts, work.long_prompt), params, of_prompts=True)


def _prompts(seed: int, count: int, length: int) -> list[dict[str, list[int]]]:
    draw = random.Random(seed)
    return [{"prompt_token_ids": [draw.randrange(1000, 30_000) for _ in range(length)]} for _ in range(count)]


def _run(llm: Any, work: Work, prompts: list[dict[str, list[int]]], params: list[Any], *, of_prompts: bool) -> float:
    start = work.clock()
    answers = llm.generate(prompts, params, use_tqdm=False)
    seconds = work.clock() - start
    written = sum(len(answer.outputs[0].token_ids) for answer in answers)
    read = sum(len(prompt["prompt_token_ids"]) for prompt in prompts)
    return (read if of_prompts else written) / seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("shape", nargs="?", choices=SHAPES)
    what.add_argument("--cpu", metavar="MODEL", help="a model with weights, on one thread of a CPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="keep every run in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
