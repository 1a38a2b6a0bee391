"""Reading the decoder of a `tokenizers.Tokenizer` into parts that can run one token at a time.

A decoder is a list of steps. Steps before the one that joins the tokens treat each token alone, or differently only
when it is the first; what follows the joining step sees the whole text. Decoders that need more are refused.
"""

import json
from dataclasses import dataclass
from typing import Any, NoReturn

import tokenizers

from quire.core.errors import CheckpointError

_PER_TOKEN = ("Replace", "Strip", "Metaspace", "WordPiece")
# What a token reads as behind another one is found by decoding it behind this; no decoder touches a plain letter.
_ANCHOR = "a"


@dataclass(frozen=True, slots=True)
class DecoderSteps:
    """A decoder, taken apart."""

    per_token: Any
    """The library's decoder for the steps before the tokens are joined; None where they leave tokens as they are."""
    separator: str
    """What stands between two tokens; empty unless the tokenizer has no decoder at all."""
    byte_level: bool
    """Whether the letters of a token stand for bytes, as in GPT-2's alphabet."""
    byte_fallback: bool
    """Whether tokens like <0x0A> stand for one byte."""
    lead: str
    """The character that is taken away at the start of the whole text."""
    lead_count: int
    """How many of those at most."""

    def text_of(self, token: str, first: bool) -> str:
        """What `token` reads as, as the first of a text or behind another, before bytes are looked at."""
        if self.per_token is None:
            return token if first else self.separator + token
        if first:
            return str(self.per_token.decode([token]))
        return str(self.per_token.decode([_ANCHOR, token])).removeprefix(_ANCHOR)


def read_decoder(backend: tokenizers.Tokenizer, source: str) -> DecoderSteps:
    """The steps of the tokenizer's decoder; `source` names it in errors."""
    if backend.decoder is None:
        return DecoderSteps(None, " ", byte_level=False, byte_fallback=False, lead="", lead_count=0)
    steps = _flat(json.loads(backend.decoder.__getstate__()))
    kinds = [str(step["type"]) for step in steps]
    joint = next((at for at, kind in enumerate(kinds) if kind in ("ByteLevel", "Fuse")), len(steps))
    per_token = [step for step in steps[:joint] if step["type"] != "ByteFallback"]
    for step in per_token:
        # The library panics on a lone space that is stripped from both sides.
        if step["type"] not in _PER_TOKEN or step.get("stop"):
            _refuse(step, source)
    lead, lead_count = _lead(steps[joint + 1 :], source)
    return DecoderSteps(
        per_token=_library_decoder(per_token) if per_token else None,
        separator="",
        byte_level=joint < len(steps) and kinds[joint] == "ByteLevel",
        byte_fallback="ByteFallback" in kinds[:joint],
        lead=lead,
        lead_count=lead_count,
    )


def _flat(step: dict[str, Any]) -> list[dict[str, Any]]:
    if step["type"] != "Sequence":
        return [step]
    return [inner for part in step["decoders"] for inner in _flat(part)]


def _lead(steps: list[dict[str, Any]], source: str) -> tuple[str, int]:
    """What the steps behind the joining one take away at the start of the text."""
    strips = [step for step in steps if step["type"] != "Fuse"]
    if not strips:
        return "", 0
    if len(strips) > 1 or strips[0]["type"] != "Strip" or strips[0]["stop"]:
        _refuse(strips[-1], source)
    return str(strips[0]["content"]), int(strips[0]["start"])


def _refuse(step: dict[str, Any], source: str) -> NoReturn:
    shown = json.dumps(step, ensure_ascii=False)[:200]
    raise CheckpointError(
        f"{source} decodes with {shown}, which quire cannot stream; known are ByteLevel, and sequences of "
        f"{', '.join(_PER_TOKEN)}, ByteFallback and Fuse with at most one Strip behind it, all from the left."
    )


def _library_decoder(steps: list[dict[str, Any]]) -> Any:
    document = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {}, "unk_token": ""},
        "decoder": {"type": "Sequence", "decoders": steps},
    }
    return tokenizers.Tokenizer.from_str(json.dumps(document)).decoder
