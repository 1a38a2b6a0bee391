"""Pasts: which sequences of a step look back at tokens of earlier ones. Plain numbers."""

from typing import NamedTuple


class Pasts(NamedTuple):
    """Where the sequences of a step stand that have a past, tokens that were cached before, as the host knows it.

    Both stretches may hold sequences of the other kind too, where the two are not apart.
    """

    sequences: int
    """So many from the first on are all that have one …"""
    tokens: int
    """… and these are their tokens."""
    first_fresh: int
    """From this sequence on are all that have none …"""
    first_fresh_token: int
    """… and from this token on."""
