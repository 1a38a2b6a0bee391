"""Tokens around a vocabulary: those matched whole in a text, and those put before and behind it."""

from collections.abc import Sequence

import tokenizers
from tokenizers import processors


def frame_with(backend: tokenizers.Tokenizer, before: Sequence[int], behind: Sequence[int]) -> None:
    """Let encoding with special tokens put these ids before and behind every text, and no others."""
    ids = dict.fromkeys((*before, *behind))
    # A template is parsed, and a token's own text may hold what parts its pieces (":", spaces); a name does not.
    names = {token_id: f"T{token_id}" for token_id in ids}
    backend.post_processor = processors.TemplateProcessing(
        single=[*(names[token_id] for token_id in before), "$A", *(names[token_id] for token_id in behind)],
        special_tokens=[
            {"id": names[token_id], "ids": [token_id], "tokens": [backend.id_to_token(token_id) or ""]}
            for token_id in ids
        ],
    )
