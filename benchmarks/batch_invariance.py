"""Whether results depend on the batch: many prompts in many ways, with --batch-invariant, each compared bit for bit.

python -m benchmarks.batch_invariance qwen3-0.6b --prompts 200 --json results.json

Every answer is computed alone first, without prefix cache; then all of them in random batches, with prompts cut into
chunks of several sizes, from the prefix cache, preempted, and over HTTP while the engine is killed with -9. Tokens and
their logprobs must be the same numbers. A run without the mode shows that the comparison can fail.
"""

import argparse
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.http_streams import write_model
from benchmarks.peers.server_process import RunningServer, ServerCommand, running
from benchmarks.peers.workload import SHAPES

_ANSWER = 64
_LONGEST = 1500
Answer = tuple[tuple[int, ...], tuple[float, ...]]
"""Tokens and their logprobs."""


def main() -> None:
    asked = _arguments()
    drawn = random.Random(asked.seed)
    system = [drawn.randint(1000, 50000) for _ in range(700)]
    prompts = [
        system[: drawn.choice((0, 0, 300, 700))]
        + [drawn.randint(1000, 50000) for _ in range(drawn.randint(1, _LONGEST - 700))]
        for _ in range(asked.prompts)
    ]
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / asked.shape
        write_model(asked.shape, model)
        alone = _alone(model, prompts)
        for way, answers in _ways(model, prompts, drawn):
            found[way] = _told(way, alone, answers)
        found["killed with -9, over HTTP"] = _told("killed", alone, _killed(model, prompts, Path(folder) / "log"))
        found["without the mode"] = _told("without", alone, _at_once(model, prompts, drawn, batch_invariant=False))
    print(json.dumps({"prompts": len(prompts), "different": found}), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"shape": asked.shape, "prompts": len(prompts), "different": found}, indent=1))


def _ways(model: Path, prompts: list[list[int]], drawn: random.Random) -> Iterator[tuple[str, list[Answer]]]:
    yield "random batches", _at_once(model, prompts, drawn, enable_prefix_caching=False)
    for tokens, threshold in ((512, 0), (1111, 37), (4096, 333)):
        settings = {"max_num_batched_tokens": tokens, "long_prefill_token_threshold": threshold}
        yield (
            f"chunks, {tokens} tokens a step, {threshold or 'any'} of a prompt",
            _at_once(model, prompts, drawn, enable_prefix_caching=False, **settings),
        )
    yield "from the prefix cache", _at_once(model, prompts, drawn, times=2)
    for mode in ("recompute", "swap"):
        settings = {"num_gpu_blocks_override": 900, "preemption_mode": mode, "enable_prefix_caching": False}
        yield f"preempted, {mode}", _at_once(model, prompts, drawn, **settings)


def _told(way: str, expected: Sequence[Answer], answers: Sequence[Answer]) -> int:
    different = sum(one != other for one, other in zip(expected, answers, strict=True))
    print(f"{way}: {different} of {len(expected)} differ", flush=True)
    return different


def _params(number: int) -> dict[str, Any]:
    """Every other answer is drawn, with a seed of its own."""
    return {"temperature": float(number % 2), "seed": number, "max_tokens": _ANSWER, "ignore_eos": True}


def _open(model: Path, **settings: Any) -> Any:
    from quire import LLM

    usual = {"gpu_memory_utilization": 0.5, "max_num_seqs": 256, "max_model_len": 2048, "batch_invariant": True}
    return LLM(str(model), load_format="dummy", skip_tokenizer=True, **usual | settings)


def _ask(llm: Any, prompts: list[list[int]], numbers: Sequence[int]) -> list[Answer]:
    from quire import SamplingParams

    given = [{"prompt_token_ids": prompts[number]} for number in numbers]
    answers = llm.generate(given, [SamplingParams(logprobs=0, **_params(n)) for n in numbers], use_tqdm=False)
    outputs = [answer.outputs[0] for answer in answers]
    return [
        (
            tuple(output.token_ids),
            tuple(at[token].logprob for token, at in zip(output.token_ids, output.logprobs, strict=True)),
        )
        for output in outputs
    ]


def _close(llm: Any) -> None:
    import torch

    llm.close()
    del llm
    gc.collect()
    torch.cuda.empty_cache()


def _alone(model: Path, prompts: list[list[int]]) -> list[Answer]:
    llm = _open(model, enable_prefix_caching=False)
    answers = [_ask(llm, prompts, [number])[0] for number in range(len(prompts))]
    _close(llm)
    return answers


def _at_once(
    model: Path, prompts: list[list[int]], drawn: random.Random, times: int = 1, **settings: Any
) -> list[Answer]:
    """In batches of random size and order."""
    llm = _open(model, **settings)
    answers: list[Answer | None] = [None] * len(prompts)
    for _ in range(times):
        numbers = list(range(len(prompts)))
        drawn.shuffle(numbers)
        while numbers:
            size = drawn.randint(1, 256)
            batch, numbers = numbers[:size], numbers[size:]
            for number, answer in zip(batch, _ask(llm, prompts, batch), strict=True):
                answers[number] = answer
    _close(llm)
    assert None not in answers
    return answers  # type: ignore[return-value]


def _killed(model: Path, prompts: list[list[int]], log: Path) -> list[Answer]:
    """Over HTTP, all at once; the engine's process is killed while they run."""
    options = ["--load-format", "dummy", "--batch-invariant", "--max-num-seqs", "256", "--max-model-len", "2048"]
    options += ["--gpu-memory-utilization", "0.5", "--store", str(log.parent / "store")]
    command = [sys.executable, "-m", "quire.cli.main", "serve", str(model), *options]
    make = lambda port: ServerCommand([*command, "--port", str(port)], str(model))  # noqa: E731
    with running(make, 4, log) as server:
        server.first_token(prompts[0])
        with ThreadPoolExecutor(len(prompts)) as pool:
            answers = [pool.submit(_completion, server, n, prompt) for n, prompt in enumerate(prompts)]
            time.sleep(0.3)
            for engine in _get(server, "/stats")["engines"]:
                os.kill(engine["pid"], signal.SIGKILL)
            print(f"killed with {sum(answer.done() for answer in answers)} answers given", flush=True)
            return [answer.result() for answer in answers]


def _completion(server: RunningServer, number: int, prompt: list[int]) -> Answer:
    body = {"model": server.model, "prompt": prompt, "logprobs": 0, "return_token_ids": True, **_params(number)}
    request = urllib.request.Request(
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        (choice,) = json.load(answer)["choices"]
    return tuple(choice["token_ids"]), tuple(choice["logprobs"]["token_logprobs"])


def _get(server: RunningServer, path: str) -> Any:
    with urllib.request.urlopen(server.url + path, timeout=60) as answer:
        return json.load(answer)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="keep what was found in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
