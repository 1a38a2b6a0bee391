"""Pooling: which hidden states of a text become its embedding."""

from typing import Literal, get_args

Pooling = Literal["mean", "last", "cls"]
"""The mean over all tokens, the last token's, or the first one's (which encoders call [CLS])."""
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
