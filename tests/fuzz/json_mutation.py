"""JSON that is well formed and means something else: a value in a seed's tree becomes another, goes, or comes twice."""

import json
import random
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, 2**31, 2**63, 2**64, -(2**63), 10**30),
    *("", "x", "\x00", "\ufffd", "名", "a" * 300, "auto", "none", "1", "-1", "<s>"),
    *([], {}, [[]], [None], {"": None}, [1, "x", None], {"type": "text"}, {"type": "function"}, {"content": "x"}),
)


def mutated_json(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """The same for the same state of `chance`."""
    tree = [json.loads(chance.choice(seeds))]
    for _ in range(chance.randint(1, 4)):
        holder, key = chance.choice(list(_places(tree)))
        kind = chance.randrange(5)
        if kind == 0 and holder is not tree:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, deepcopy(holder[key]))
        elif kind == 2 and isinstance(holder, dict):
            holder[chance.choice(["x", "type", "id", "content", *holder])] = deepcopy(chance.choice(_ODD))
        else:
            holder[key] = _another(holder[key], chance)
    return json.dumps(tree[0]).encode()


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _another(value: Any, chance: random.Random) -> Any:
    """Often of the same kind."""
    alike = [odd for odd in _ODD if type(odd) is type(value)]
    return deepcopy(chance.choice(alike if alike and chance.random() < 0.5 else _ODD))


def _places(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    pending = [tree]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            found.append((holder, key))
            pending.append(holder[key])
    return found
