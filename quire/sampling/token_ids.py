"""Token ids of a request against the logits' width, before any of them indexes memory. Plain integers, no torch."""

from collections.abc import Collection, Iterable, Sequence

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_BAD_WORD_LENGTH, SamplingParams

LONGEST_BAD_WORD = 4 * MAX_BAD_WORD_LENGTH
"""In tokens: one for every UTF-8 byte."""
MAX_BAD_WORD_TOKENS = 1 << 13
"""Of all bad words of one request together; every one of them is compared at every step."""

Words = Sequence[Sequence[int]]


def check_token_ids(params: SamplingParams, vocab_size: int, bad_words: Words = ()) -> None:
    """Raise InvalidRequest unless every token id the request names has a logit; `bad_words` are already tokens."""
    _check("logit_bias", params.logit_bias or (), vocab_size)
    _check("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
    _check("stop_token_ids", params.stop_token_ids, vocab_size)
    _check("logprob_token_ids", params.logprob_token_ids, vocab_size)
    if params.reasoning is not None:
        _check("reasoning", (*params.reasoning.start, *params.reasoning.end), vocab_size)
    for word in bad_words:
        _check("bad_words", word, vocab_size)
    shortest, longest = min(map(len, bad_words), default=1), max(map(len, bad_words), default=1)
    if not 1 <= shortest <= longest <= LONGEST_BAD_WORD or sum(map(len, bad_words)) > MAX_BAD_WORD_TOKENS:
        raise InvalidRequest(
            f"bad_words has {len(bad_words)} entries of {shortest} to {longest} tokens, {sum(map(len, bad_words))} "
            f"together; an entry may have 1 to {LONGEST_BAD_WORD}, all together {MAX_BAD_WORD_TOKENS}",
            field="bad_words",
        )


def within(tokens: Iterable[int], vocab_size: int) -> list[int]:
    """Those ids that have a logit. A prompt may hold others (placeholder tokens), and a model may name an end token
    that its logits do not reach.
    """
    return [token for token in tokens if 0 <= token < vocab_size]


def _check(field: str, tokens: Collection[int], vocab_size: int) -> None:
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocab_size:
        wrong = next(token for token in tokens if not 0 <= token < vocab_size)
        raise InvalidRequest(
            f"{field} names token id {wrong}; the model has {vocab_size}, 0 to {vocab_size - 1}", field=field
        )
