"""Chats of several turns, for `quire bench serve --dataset jsonl`: what routing by prefix is for.

`python -m benchmarks.router.conversations FILE` writes them turn by turn: all first turns, then all second ones.
"""

import json
import random
import sys
from pathlib import Path

_CONVERSATIONS, _TURNS, _SEED = 20, 5, 7
_WORDS = ("sea", "boat", "wind", "harbour", "light", "stone", "bridge", "river", "winter", "bread", "letter", "garden")
_SYSTEM = "You are a patient companion who knows the sea and answers in a few plain sentences. " * 8


def _text(words: int, chance: random.Random) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))


def conversations() -> list[list[dict[str, str]]]:
    """The messages of every request, in the order in which they are sent."""
    chance = random.Random(_SEED)
    talks = [[{"role": "system", "content": _SYSTEM}] for _ in range(_CONVERSATIONS)]
    sent = []
    for turn in range(_TURNS):
        for talk in chance.sample(talks, len(talks)):  # nobody's turn comes in the same order again
            if turn:
                talk.append({"role": "assistant", "content": _text(40, chance)})
            talk.append({"role": "user", "content": _text(120 if turn == 0 else 40, chance)})
            sent.append(list(talk))
    return sent


if __name__ == "__main__":
    lines = [json.dumps({"messages": messages, "output_len": 16}) for messages in conversations()]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")
