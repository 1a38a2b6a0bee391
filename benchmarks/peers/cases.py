"""What is measured: how many streams, how long their prompts and answers, and what counts as the speed."""

import random
from dataclasses import dataclass
from typing import Literal

VOCABULARY = range(100, 49_000)
"""Token ids of the default model that are ordinary pieces of text."""


@dataclass(frozen=True, slots=True)
class Case:
    """Streams that begin together, each with a prompt and an answer of fixed length."""

    name: str
    streams: int
    prompt: int
    output: int
    counts: Literal["decode", "prompt", "output"]
    """decode: tokens after the first; prompt: tokens until the first; output: all answers over the whole time."""

    def rate(self, first: float, total: float) -> float:
        """Tokens a second, from the seconds to the first token and to the last."""
        if self.counts == "decode":
            return (self.output - 1) / (total - first)
        if self.counts == "prompt":
            return self.prompt / first
        return self.streams * self.output / total

    def prompts(self, seed: int) -> list[list[int]]:
        """Random ones, of which no two begin alike: no cache of prefixes can help anybody."""
        draw = random.Random(seed)
        return [draw.choices(VOCABULARY, k=self.prompt) for _ in range(self.streams)]


OFFLINE = {
    "decode": Case("one stream, 128 in + 128 out: decode", 1, 128, 128, "decode"),
    "decode_alone": Case("one stream, 1 in + 128 out: decode", 1, 1, 128, "decode"),
    "prompt": Case("prompt of 512", 1, 512, 1, "prompt"),
    "batch16": Case("16 × (128 in + 64 out): output", 16, 128, 64, "output"),
    "batch64": Case("64 × (128 in + 64 out): output", 64, 128, 64, "output"),
}
SERVERS = {
    "server16": Case("server, 16 streams of 128 in + 64 out: output", 16, 128, 64, "output"),
    "server64": Case("server, 64 streams of 128 in + 64 out: output", 64, 128, 64, "output"),
}
