"""What both generators send: a file of prompts, how long the answers are, and how many requests are under way."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from quire.bench.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Workload:
    """Sizes in tokens."""

    requests: int
    at_once: int
    prompt: int
    answer: int

    def __str__(self) -> str:
        return f"{self.requests} requests, {self.at_once} at a time, {self.prompt} tokens in and {self.answer} out"

    def write(self, path: Path, vocabulary: Vocabulary, seed: int) -> None:
        """Lines that both read: each takes the names it knows."""
        draw = Random(f"{seed} agreement")
        lines = [
            {
                "prompt": vocabulary.text(self.prompt, draw),
                "output_len": self.answer,
                "output_tokens_count": self.answer,
            }
            for _ in range(self.requests)
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
