"""How much of a context a conversation may fill, so that its answer still fits."""

_SHARE_FOR_ANSWER = 4
"""At least one part in so many of the context stays free for the answer, even if `max_tokens` is less."""


def room_for_prompt(context: int, max_tokens: int | None) -> int:
    """Tokens that a prompt may have; never less than half the context."""
    least = context // _SHARE_FOR_ANSWER
    return context - min(max(max_tokens or least, least), context // 2)
