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
    shared: int = 0
    """Tokens of the prefix that all prompts of one run share; prefix caches are on where there are any."""

    def rate(self, first: float, total: float) -> float:
        """Tokens a second, from the seconds to the first token and to the last."""
        if self.counts == "decode":
            return (self.output - 1) / (total - first)
        if self.counts == "prompt":
            return self.prompt / first
        return self.streams * self.output / total

    def prompts(self, seed: int) -> list[list[int]]:
        """Random ones, of which no two share more of a prefix than this: no prefix cache can help with more."""
        draw = random.Random(seed)
        head = draw.choices(VOCABULARY, k=self.shared)
        return [head + draw.choices(VOCABULARY, k=self.prompt - self.shared) for _ in range(self.streams)]


OFFLINE = {
    "decode": Case("one stream, 128 in + 128 out: decode", 1, 128, 128, "decode"),
    "decode_alone": Case("one stream, 1 in + 128 out: decode", 1, 1, 128, "decode"),
    "prompt": Case("prompt of 512", 1, 512, 1, "prompt"),
    "long_prompt": Case("prompt of 2,048", 1, 2048, 1, "prompt"),
    "batch16": Case("16 × (128 in + 64 out): output", 16, 128, 64, "output"),
    "batch64": Case("64 × (128 in + 64 out): output", 64, 128, 64, "output"),
}
SHARED = {
    "prefix16": Case("16 × (512 shared + 32 in + 64 out): output", 16, 544, 64, "output", shared=512),
}
"""Like those above, with prefix caches on where an engine has one."""
SERVERS = {
    "server16": Case("server, 16 streams of 128 in + 64 out: output", 16, 128, 64, "output"),
    "server64": Case("server, 64 streams of 128 in + 64 out: output", 64, 128, 64, "output"),
    "server_prefix16": Case(
        "server, 16 streams of 512 shared + 32 in + 64 out: output", 16, 544, 64, "output", shared=512
    ),
}
CONTEXT = 2304
"""Tokens that every engine makes room for: the longest case, and a little."""
