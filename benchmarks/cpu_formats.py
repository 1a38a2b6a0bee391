"""How fast the same model runs on a CPU in several formats: each beside the first, in interleaved rounds.

quire quantize smollm2 q8.gguf --scheme q8_0 && quire quantize smollm2 int8 --scheme int8
python -m benchmarks.cpu_formats q8.gguf int8

One thread, and what is timed is the processor, which others on the machine disturb least.
"""

import argparse
import random
import time
from statistics import median
from typing import Any

from benchmarks.paired import middle, times_better

_PROMPT, _ANSWER = 512, 128


def main() -> None:
    asked = _arguments()
    from quire import LLM

    models = {
        name: LLM(name, max_num_seqs=1, max_model_len=1024, cpu_threads=1, enable_prefix_caching=False)
        for name in asked.models
    }
    works = {f"prompt of {_PROMPT}": (_PROMPT, 1), f"answer of {_ANSWER}": (8, _ANSWER)}
    for work, (prompt, answer) in works.items():
        rates: dict[str, list[float]] = {name: [] for name in models}
        for seed in range(asked.rounds + 1):
            for name, llm in models.items():
                rate = _rate(llm, seed, prompt, answer)
                if seed:  # the first round maps the weights
                    rates[name].append(rate)
        first = rates[asked.models[0]]
        for name, found in rates.items():
            beside = times_better(found, first, "higher").told()
            print(f"{work}, {name}: {median(found):,.1f} tok/s {middle(found).told()}, {beside} ×")


def _rate(llm: Any, seed: int, prompt: int, answer: int) -> float:
    from quire import SamplingParams

    draw = random.Random(seed)
    prompts = [{"prompt_token_ids": [draw.randrange(1000, 30_000) for _ in range(prompt)]}]
    params = SamplingParams(temperature=0.0, max_tokens=answer, ignore_eos=True)
    start = time.process_time()
    llm.generate(prompts, params, use_tqdm=False)
    return max(prompt if answer == 1 else 0, answer) / (time.process_time() - start)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="folders or files; all are compared with the first")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
