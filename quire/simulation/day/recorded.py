"""Recorded conversations as they are published: ShareGPT's JSON, and LMSYS-Chat-1M's records as JSON lines.

| data set | file | a conversation |
|---|---|---|
| ShareGPT | one JSON list | `conversations`: a list of `from` (`human`, `gpt`) and `value` |
| LMSYS-Chat-1M | a JSON object a line, as converted from parquet | `conversation`: a list of `role` and `content` |

Both hold texts and no times. Texts are counted at four bytes a token, as no tokenizer is at hand.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from quire.core.errors import ConfigError
from quire.simulation.day.conversation import Turn
from quire.simulation.day.traffic import pause_after_answer

_BYTES_A_TOKEN = 4
_USERS = ("human", "user")
_MODELS = ("gpt", "assistant", "chatgpt", "bing", "bard")


def read_conversations(path: Path, seed: int, limit: int | None = None) -> list[list[Turn]]:
    """The turns of every conversation of a file that has a question and an answer."""
    random, found = Random(f"{seed} pauses"), list[list[Turn]]()
    try:
        for record in _records(path):
            turns = list(_turns(record, random))
            if turns:
                found.append(turns)
            if limit is not None and len(found) >= limit:
                break
    except OSError as error:
        raise ConfigError(f"the conversations {path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the conversations {path} are not JSON: {error}.") from error
    if not found:
        raise ConfigError(
            f"{path} holds no conversation with a question and an answer; it must be ShareGPT's JSON "
            "(conversations: from, value) or LMSYS-Chat-1M's as JSON lines (conversation: role, content)."
        )
    return found


def _records(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        is_list = file.read(64).lstrip().startswith(b"[")
        file.seek(0)
        if is_list:
            yield from msgspec.json.decode(file.read())
        else:
            decoder = msgspec.json.Decoder()
            yield from (decoder.decode(line) for line in file if line.strip())


def _turns(record: Any, random: Random) -> Iterator[Turn]:
    if not isinstance(record, dict):
        return
    asked = 0
    for message in record.get("conversations") or record.get("conversation") or ():
        if not isinstance(message, dict):
            continue
        role, text = message.get("from", message.get("role")), message.get("value", message.get("content"))
        tokens = max(1, len(str(text).encode(errors="replace")) // _BYTES_A_TOKEN) if text else 0
        if role in _USERS:
            asked += tokens
        elif role in _MODELS and asked and tokens:
            yield Turn(asked, tokens, pause_after_answer(random))
            asked = 0
