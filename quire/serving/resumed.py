"""Resumed: whether what another server is said to have answered can be gone on from. Clients may send anything."""

from collections.abc import Sequence

from quire.core.errors import InvalidRequest
from quire.core.request import Request
from quire.protocol.journal import RESUME_HEADER, Progress


def check_resumed(
    resumed: Sequence[Progress], requests: Sequence[Request], vocab_size: int, max_model_len: int
) -> None:
    """Raise InvalidRequest unless these could be the beginnings of the requests' answers."""
    seen: set[tuple[int, int]] = set()
    for each in resumed:
        if not 0 <= each.prompt < len(requests):
            raise _wrong(f"a sequence of prompt {each.prompt}, and the body has {len(requests)}")
        request = requests[each.prompt]
        if not 0 <= each.index < request.params.num_sequences or (each.prompt, each.index) in seen:
            raise _wrong(
                f"sequence {each.index} of prompt {each.prompt}, and {request.params.num_sequences} are asked for, once"
            )
        seen.add((each.prompt, each.index))
        if each.tokens and not 0 <= min(each.tokens) <= max(each.tokens) < vocab_size:
            raise _wrong(f"token ids from {min(each.tokens)} to {max(each.tokens)}, of a vocabulary of {vocab_size}")
        most = max_model_len - len(request.prompt.tokens)
        if request.params.max_tokens is not None:
            most = min(most, request.params.max_tokens)
        if len(each.tokens) > most or (len(each.tokens) == most and each.end is None):
            raise _wrong(f"{len(each.tokens)} tokens of a sequence that ends with {most}")
        if each.end is None and each.tokens and each.tokens[-1] in request.stop_ids():
            # before --min-tokens such a token is never drawn, behind them it is the end
            raise _wrong(f"a sequence that goes on behind its end, token {each.tokens[-1]}")


def _wrong(given: str) -> InvalidRequest:
    return InvalidRequest(
        f"what the answer should go on from has {given}; send what was received.", field=RESUME_HEADER
    )
