"""ShareGPT's JSON: a list of conversations; the first question is asked, its answer says how long answers get."""

from pathlib import Path
from random import Random

import msgspec

from quire.bench.planned import PlannedRequest
from quire.bench.vocabulary import Vocabulary
from quire.core.errors import ConfigError

SHORTEST = 4
LONGEST_PROMPT = 1024
LONGEST_TOTAL = 2048
"""Tokens: what lies outside is usually left out of measurements with this dataset."""


class _Turn(msgspec.Struct):
    value: str = ""


class _Conversation(msgspec.Struct):
    conversations: list[_Turn] = []


def sharegpt_requests(
    path: Path, vocabulary: Vocabulary, output_len: int | None, number: int | None, seed: int
) -> list[PlannedRequest]:
    """In a random order. Without `output_len`, a tokenizer says how long the answers are."""
    if output_len is None and not vocabulary.is_exact:
        raise ConfigError(
            "--dataset sharegpt has answers as text, and without a tokenizer nobody can count their tokens; "
            "name one with --tokenizer, or give --output-len."
        )
    pairs = [
        (one.conversations[0].value, one.conversations[1].value)
        for one in _read(path)
        if len(one.conversations) > 1 and one.conversations[0].value
    ]
    Random(f"{seed} sharegpt").shuffle(pairs)
    found: list[PlannedRequest] = []
    for prompt, answer in pairs:
        if len(found) == number:
            break
        output = _output(vocabulary, prompt, answer, output_len)
        if output is not None:
            found.append(PlannedRequest(len(found), text=prompt, output_tokens=output))
    if not found:
        raise ConfigError(f"{path} holds no conversation of usual length with a question and an answer.")
    return found


def _output(vocabulary: Vocabulary, prompt: str, answer: str, output_len: int | None) -> int | None:
    """Tokens to ask for; None leaves the conversation out."""
    asked = vocabulary.count(prompt)
    if asked is None:
        return output_len
    output = output_len or vocabulary.count(answer) or 0
    fits = SHORTEST <= asked <= LONGEST_PROMPT and asked + output <= LONGEST_TOTAL
    return output if fits and (output_len is not None or output >= SHORTEST) else None


def _read(path: Path) -> list[_Conversation]:
    try:
        return msgspec.json.decode(path.expanduser().read_bytes(), type=list[_Conversation])
    except OSError as error:
        raise ConfigError(f"the dataset {path} cannot be read: {error.strerror or error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f'the dataset {path} is not ShareGPT\'s JSON, a list of {{"conversations": [{{"value": …}}, …]}}: {error}.'
        ) from error
