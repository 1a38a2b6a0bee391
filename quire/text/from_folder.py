"""A tokenizer from a checkpoint folder: tokenizer.json and the small files beside it.

Follows what `transformers` makes of the same files: tokens that only tokenizer_config.json lists are added, those it
names as special become so, and what stands around every text is tokenizer.json's to say.
"""

import json
import re
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from quire.core.errors import CheckpointError
from quire.models.loading.json_object import MOST_JSON_BYTES, read_json_object
from quire.text.added_tokens import frame_with
from quire.text.pretokenizers import SPACES_AT_END
from quire.text.sentencepiece_file import read_sentencepiece
from quire.text.special_tokens import SpecialTokens
from quire.text.spm_vocabulary import SpmVocabulary, spm_backend
from quire.text.tokenizer import Tokenizer

_TOKENIZER = "tokenizer.json"
_SENTENCEPIECE = "tokenizer.model"
_TYPES = "token_type_ids"
_SLOW_PATTERN = re.compile(rb'("Regex"\s*:\s*)"\\\\s\+\$"')
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTED = ("additional_special_tokens", "extra_special_tokens")


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of the checkpoint in `folder`."""
    settings = _settings(folder)
    path = folder / _TOKENIZER
    vocabulary = None if path.is_file() else _sentencepiece(folder)
    backend = _read_tokenizer_json(path) if vocabulary is None else spm_backend(vocabulary)
    try:
        _add_tokens(backend, settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{folder / 'tokenizer_config.json'} lists tokens that cannot be added: {error}."
        ) from None
    special = _special(backend, settings, folder, SpecialTokens() if vocabulary is None else vocabulary.special)
    if vocabulary is not None:
        bos = () if special.bos is None else (special.bos,)
        before = bos if settings.get("add_bos_token", True) else ()
        frame_with(backend, before, special.eos[:1] if settings.get("add_eos_token") else ())
    inputs = settings.get("model_input_names")
    with_types = not isinstance(inputs, list) or _TYPES in inputs
    return Tokenizer(backend, special, source=str(folder), with_types=with_types)


def _settings(folder: Path) -> dict[str, Any]:
    """What the small files say of tokens; those that list them all by id need no other."""
    settings = _optional(folder / "tokenizer_config.json")
    if "added_tokens_decoder" in settings:
        return settings
    added = {str(number): token for token, number in _optional(folder / "added_tokens.json").items()}
    return {**settings, **_optional(folder / "special_tokens_map.json"), "added_tokens_decoder": added}


def _sentencepiece(folder: Path) -> SpmVocabulary:
    if (folder / _SENTENCEPIECE).is_file():
        return read_sentencepiece(folder / _SENTENCEPIECE)
    raise CheckpointError(
        f"{folder} holds neither {_TOKENIZER} nor {_SENTENCEPIECE}. Download {_TOKENIZER} from the model's page, or "
        f"make it once with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
    )


def _read_tokenizer_json(path: Path) -> tokenizers.Tokenizer:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None
    if len(data) > MOST_JSON_BYTES:
        raise CheckpointError(f"{path} is larger than {MOST_JSON_BYTES:,} bytes, which no tokenizer needs.")
    try:
        # DeepSeek's files hold a pattern that takes time quadratic in a run of spaces; this one cuts the same.
        return tokenizers.Tokenizer.from_buffer(_SLOW_PATTERN.sub(_quick_pattern, data))
    except Exception as error:  # the library raises nothing more precise
        raise CheckpointError(f"{path} is no tokenizer that can be read ({error}); download it again.") from None


def _quick_pattern(match: re.Match[bytes]) -> bytes:
    return match[1] + json.dumps(SPACES_AT_END).encode()


def _optional(path: Path) -> dict[str, Any]:
    return {key: value for key, value in read_json_object(path).items() if value is not None} if path.is_file() else {}


def _add_tokens(backend: tokenizers.Tokenizer, settings: dict[str, Any]) -> None:
    """Add what tokenizer.json leaves out, in the order of the ids, then see that named tokens are special."""
    decoder = settings.get("added_tokens_decoder")
    numbered = sorted((int(number), token) for number, token in decoder.items()) if isinstance(decoder, dict) else []
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([added for _, token in numbered if (added := _added(token)) and added.content not in known])
    named = [settings.get(name) for name in _NAMED]
    for name in _LISTED:
        listed = settings.get(name)
        named += listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else ()
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    missing = [added for token in named if (added := _added(token, special=True)) and added.content not in special]
    backend.add_special_tokens(missing)


def _added(token: object, *, special: bool = False) -> AddedToken | None:
    """A token as the JSON files write it: its text, or an object with its text and how it is matched."""
    if isinstance(token, str):
        return AddedToken(token, special=special, normalized=False)
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        return None
    flags = {key: bool(token[key]) for key in ("lstrip", "rstrip", "single_word", "normalized") if key in token}
    return AddedToken(token["content"], special=special or bool(token.get("special")), **flags)


def _special(
    backend: tokenizers.Tokenizer, settings: dict[str, Any], folder: Path, default: SpecialTokens
) -> SpecialTokens:
    def id_of(name: str, default_id: int | None) -> int | None:
        token = _added(settings.get(name))
        return default_id if token is None else backend.token_to_id(token.content)

    eos = id_of("eos_token", next(iter(default.eos), None))
    named = () if eos is None else (eos,)
    generation = folder / "generation_config.json"
    return SpecialTokens(
        bos=id_of("bos_token", default.bos),
        eos=tuple(dict.fromkeys((*named, *_generation_eos(generation)))),
        pad=id_of("pad_token", default.pad),
        unk=id_of("unk_token", default.unk),
    )


def _generation_eos(path: Path) -> list[int]:
    given = _optional(path).get("eos_token_id", [])
    ids = given if isinstance(given, list) else [given]
    if not all(isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0 for token_id in ids):
        raise CheckpointError(f"{path} gives eos_token_id as {given!r}, but it must be a token id or a list of them.")
    return ids
