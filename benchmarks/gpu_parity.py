"""Greedy tokens of the default model on this machine's GPU beside those of its CPU in float32.

python -m benchmarks.gpu_parity [--json results.json]
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at",
    "The three laws of motion are",
    "import numpy as np\n\n# compute the mean of each column\n",
    "Q: What is the largest planet in the solar system?\nA:",
    "In 1969, humans first",
    "Der schnelle braune Fuchs",
    "La vie est belle parce que",
    "1, 1, 2, 3, 5, 8, 13,",
    "The recipe calls for two cups of flour,",
    "Dear Sir or Madam,\n\n",
    "SELECT name, age FROM users WHERE",
    "The opposite of hot is",
    "<h1>Welcome</h1>\n<p>",
    "She opened the letter and read:",
    "Photosynthesis is the process by which",
    "A haiku about autumn:\n",
    "The meaning of life, according to",
)
NUM_TOKENS = 64


def greedy_tokens(*, on_gpu: bool, dtype: str) -> list[list[int]]:
    """What the model answers to every prompt, by a process of its own: a process has one device."""
    settings = {"dtype": dtype} if on_gpu else {"dtype": dtype, "cpu_compute": "exact"}
    hidden = {} if on_gpu else {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "benchmarks.gpu_parity", "--answer", json.dumps(settings)]
    done = subprocess.run(command, env={**os.environ, **hidden}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the model could not answer in {dtype}:\n{done.stderr[-2000:]}")
    answered: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return answered


def common(left: list[int], right: list[int]) -> int:
    """How many first tokens are the same."""
    return next((place for place, both in enumerate(zip(left, right, strict=True)) if both[0] != both[1]), len(left))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    asked = parser.parse_args()
    if asked.answer is not None:
        _answer(json.loads(asked.answer))
        return
    reference = greedy_tokens(on_gpu=False, dtype="float32")
    told = {}
    for dtype in ("float32", "bfloat16", "float16"):
        found = greedy_tokens(on_gpu=True, dtype=dtype)
        same = [common(left, right) for left, right in zip(reference, found, strict=True)]
        told[dtype] = same
        equal = sum(length == NUM_TOKENS for length in same)
        print(
            f"{dtype}: {equal} of {len(same)} answers of {NUM_TOKENS} tokens equal the CPU's in float32, "
            f"{sum(same) / len(same):.1f} first tokens on average",
            flush=True,
        )
    if asked.json is not None:
        asked.json.write_text(json.dumps({"tokens": NUM_TOKENS, "common": told}) + "\n")


def _answer(settings: dict[str, str]) -> None:
    from quire import LLM, SamplingParams

    llm = LLM("smollm2", max_model_len=1024, **settings)  # type: ignore[arg-type]
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    answers = llm.generate(list(PROMPTS), params, use_tqdm=False)
    print(json.dumps([answer.outputs[0].token_ids for answer in answers]))


if __name__ == "__main__":
    main()
