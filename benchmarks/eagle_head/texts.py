"""Texts that the model writes itself, for its head to learn from."""

import argparse
import random
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.eagle_head.files import save_whole
from benchmarks.eagle_head.prompts import draw_prompt

Texts = list[list[int]]
"""Tokens of each, prompt and answer."""


def write_texts(asked: argparse.Namespace, path: Path, until: float) -> Texts:
    """What there is already, and what the model writes in the time that is left for it."""
    from quire import LLM, SamplingParams

    file = path / "texts.safetensors"
    texts = _read_texts(file) if file.is_file() else []
    if len(texts) >= asked.most_texts:
        return texts
    settings = {"max_model_len": asked.length, "max_num_seqs": asked.streams, "gpu_memory_utilization": 0.5}
    llm = LLM(asked.model, **settings)
    at_once, generator = asked.streams * 2, random.Random(len(texts))
    while time.monotonic() < until and len(texts) < asked.most_texts:
        prompts = [draw_prompt(generator) for _ in range(at_once)]
        messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
        tokens = min(asked.answer_tokens, asked.length // 2)
        params = [
            SamplingParams(temperature=generator.choice((0.0, 0.7, 1.0)), top_p=0.95, max_tokens=tokens, seed=number)
            for number in range(len(texts), len(texts) + at_once)
        ]
        outputs = llm.chat(messages, params, use_tqdm=False)
        texts += [[*output.prompt_token_ids, *output.outputs[0].token_ids][: asked.length] for output in outputs]
        _keep(texts, file)
        print(f"{len(texts)} texts of {sum(map(len, texts)):,} tokens", flush=True)
    llm.close()
    return texts


def _read_texts(file: Path) -> Texts:
    found = load_file(file)
    return [part.tolist() for part in found["tokens"].split(found["lengths"].tolist())]


def _keep(texts: Texts, file: Path) -> None:
    tokens = torch.tensor([token for text in texts for token in text], dtype=torch.int32)
    save_whole({"tokens": tokens, "lengths": torch.tensor([len(text) for text in texts])}, file)
