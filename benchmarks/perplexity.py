"""Perplexity of the default model on texts, computed fast and exactly: what the native CPU core's arithmetic costs.

python benchmarks/perplexity.py [--model smollm2] [FILES]     the files default to LICENSE and docs/*.md
"""

import argparse
import math
from pathlib import Path

from quire import LLM, SamplingParams

_CHARACTERS = 6000
"""Of each text, from its beginning."""


def perplexity(model: str, compute: str, texts: list[str]) -> tuple[float, int]:
    """And over how many tokens."""
    llm = LLM(model, cpu_compute=compute, enable_prefix_caching=False)
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    logprobs = [
        position[token].logprob
        for output in llm.generate(texts, params, use_tqdm=False)
        for token, position in zip(output.prompt_token_ids[1:], (output.prompt_logprobs or [])[1:], strict=True)
        if position is not None
    ]
    llm.close()
    return math.exp(-sum(logprobs) / len(logprobs)), len(logprobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("files", nargs="*", type=Path)
    asked = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    files = asked.files or [root / "LICENSE", *sorted((root / "docs").glob("*.md"))]
    texts = [file.read_text()[:_CHARACTERS] for file in files]
    exact, count = perplexity(asked.model, "exact", texts)
    fast, _ = perplexity(asked.model, "fast", texts)
    print(f"{count} tokens: exact {exact:.4f}, fast {fast:.4f}, {fast / exact - 1:+.3%}")


if __name__ == "__main__":
    main()
