"""Offline workloads on a GPU: models of public shapes with random weights, and seeded requests, greedy to the end.

python -m benchmarks.gpu_workloads llama-8b single mixed256 prefix prefill --json results.json
python -m benchmarks.gpu_workloads llama-8b single mixed256 prefill --quantization int4
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.peers.workload import SHAPES, WORKLOADS, requests, write_shape
from benchmarks.random_quantized import FORMATS, make_random


@dataclass(frozen=True, slots=True)
class Run:
    """One workload, once."""

    workload: str
    seconds: float
    output_tokens: int
    prompt_tokens: int

    @property
    def rate(self) -> float:
        """Tokens a second: of prompts where answers are one token, else of answers."""
        return (self.prompt_tokens if self.workload == "prefill" else self.output_tokens) / self.seconds


def main() -> None:
    begin = time.perf_counter()
    asked = _arguments()
    from quire import LLM, SamplingParams

    imported = time.perf_counter()
    if asked.quantization is not None:
        make_random(asked.quantization, int(str(SHAPES[asked.shape]["num_hidden_layers"])))
    with tempfile.TemporaryDirectory() as folder:
        write_shape(asked.shape, Path(folder))
        llm = LLM(
            folder,
            load_format="dummy",
            skip_tokenizer=True,
            max_num_seqs=256,
            max_model_len=4096,
            batch_invariant=asked.batch_invariant,
        )
        first = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        llm.generate([{"prompt_token_ids": list(range(1000, 1128))}], first, use_tqdm=False)
    started = time.perf_counter()
    print(
        f"{asked.shape}: imports {imported - begin:.1f} s, start to first answer {started - imported:.1f} s", flush=True
    )
    llm.warm_up()
    print(f"{asked.shape}: graphs captured and kernels compiled in {time.perf_counter() - started:.1f} s", flush=True)
    runs: list[Run] = []
    for workload in asked.workloads:
        for seed in range(asked.warmups + asked.rounds):  # seeds differ: the prefix cache must not know the prompts
            lists = requests(workload, seed)
            prompts = [{"prompt_token_ids": prompt} for prompt, _ in lists]
            params = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for _, count in lists]
            start = time.perf_counter()
            answers = llm.generate(prompts, params, use_tqdm=False)
            seconds = time.perf_counter() - start
            written = sum(len(answer.outputs[0].token_ids) for answer in answers)
            if seed >= asked.warmups:
                runs.append(Run(workload, seconds, written, sum(len(prompt) for prompt, _ in lists)))
        rates = [run.rate for run in runs if run.workload == workload]
        print(f"{asked.shape} {workload}: {median(rates):,.0f} tok/s ({min(rates):,.0f}–{max(rates):,.0f})", flush=True)
    if asked.json is not None:
        told = {
            "shape": asked.shape,
            "quantization": asked.quantization,
            "start": started - begin,
            "runs": [asdict(run) for run in runs],
        }
        asked.json.write_text(json.dumps(told, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--quantization", choices=FORMATS, help="random codes in this format; unset: bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmups", type=int, default=1, help="rounds that are not kept, after warm-up")
    parser.add_argument("--batch-invariant", action="store_true", help="with sums in an order that no batch changes")
    parser.add_argument("--json", type=Path, help="keep every run in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
