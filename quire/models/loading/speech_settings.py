"""What a Whisper checkpoint's files say of its special tokens: tokenizer.json has their names, generation_config.json
which tokens no transcript has. Torch-free.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.core.speech import SpeechVocabulary
from quire.models.loading.folder import CONFIG
from quire.models.loading.json_object import is_count, read_json_object

_GENERATION, _TOKENIZER = "generation_config.json", "tokenizer.json"
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
_HEADS = "decoder_attention_heads"
_USUAL_INITIAL_TIMESTAMP = 50
"""One second: what Whisper's own code allows."""


def read_speech_vocabulary(path: Path) -> SpeechVocabulary:
    """Of the checkpoint in a folder."""
    added = _added_tokens(path / _TOKENIZER)
    settings_file = path / _GENERATION
    settings = read_json_object(settings_file if settings_file.is_file() else path / CONFIG)
    start, transcribe, translate = (
        _token(path, added, name) for name in ("startoftranscript", "transcribe", "translate")
    )
    multilingual = settings.get("is_multilingual", "lang_to_id" in settings)
    codes = {match[1]: number for name, number in added.items() if (match := _LANGUAGE.fullmatch(name))}
    languages = {code: number for code, number in codes.items() if start < number < min(transcribe, translate)}
    initial = settings.get("max_initial_timestamp_index", _USUAL_INITIAL_TIMESTAMP)
    return SpeechVocabulary(
        start=start,
        previous=_token(path, added, "startofprev"),
        end=_token(path, added, "endoftext"),
        no_speech=_token(path, added, "nospeech", "nocaptions"),
        no_timestamps=_token(path, added, "notimestamps"),
        transcribe=transcribe if multilingual else None,
        translate=translate if multilingual else None,
        languages=languages if multilingual else {},
        suppressed=_tokens(settings, "suppress_tokens", settings_file),
        suppressed_first=_tokens(settings, "begin_suppress_tokens", settings_file),
        max_initial_timestamp=initial if is_count(initial) else None,
        alignment_heads=_alignment_heads(settings, read_json_object(path / CONFIG), settings_file),
    )


def _alignment_heads(settings: Mapping[str, Any], config: Mapping[str, Any], path: Path) -> tuple[tuple[int, int], ...]:
    """As the files say; else all heads of the upper half of the decoder, as Whisper's own code has it."""
    listed, layers, heads = settings.get("alignment_heads"), config.get("decoder_layers"), config.get(_HEADS)
    if not isinstance(layers, int) or not isinstance(heads, int):
        return ()
    if listed is None:
        return tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))
    pairs = [tuple(pair) if isinstance(pair, list) else () for pair in listed] if isinstance(listed, list) else [()]
    if not all(len(pair) == 2 and pair[0] in range(layers) and pair[1] in range(heads) for pair in pairs):
        raise CheckpointError(f"{path} must give alignment_heads as pairs of a layer and a head of the decoder.")
    return tuple(sorted((pair[0], pair[1]) for pair in pairs))


def _added_tokens(path: Path) -> dict[str, int]:
    listed = read_json_object(path).get("added_tokens")
    if not isinstance(listed, list):
        raise CheckpointError(f"{path} has no list of added_tokens, among which Whisper's own are.")
    found: dict[str, int] = {}
    for each in listed:
        content, number = (each.get("content"), each.get("id")) if isinstance(each, dict) else (None, None)
        if isinstance(content, str) and isinstance(number, int):
            found[content] = number
    return found


def _token(path: Path, added: Mapping[str, int], *names: str) -> int:
    for name in names:
        if f"<|{name}|>" in added:
            return added[f"<|{name}|>"]
    raise CheckpointError(f"{path / _TOKENIZER} has no token <|{names[0]}|>, which every Whisper model has.")


def _tokens(settings: Mapping[str, Any], name: str, path: Path) -> tuple[int, ...]:
    listed = settings.get(name) or []
    if not isinstance(listed, list) or not all(map(is_count, listed)):
        raise CheckpointError(f"{path} must give {name} as a list of token ids.")
    return tuple(listed)
