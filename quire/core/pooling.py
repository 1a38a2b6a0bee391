"""Pooling: what of a text's hidden states is given back: one vector, a vector for every token, or scores of labels."""

from typing import Literal, get_args

Pooling = Literal["mean", "last", "cls"]
"""The mean over all tokens, the last token's, or the first one's (which encoders call [CLS])."""
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

Readout = Literal["embed", "token_embed", "classify", "align"]
"""What the device computes: a vector for a text, one for each of its tokens, a classifier's raw scores, or how much
each token looks at each position of what an encoder made."""

Rows = list[list[float]]
"""What was read off one text: a single row, or one for every token."""

PoolingTask = Literal["embed", "token_embed", "classify", "score", "reward"]
"""What a client asks for, in vLLM's words. The last three read a classifier: its probabilities, the one of its only
label, and its scores as they are."""
POOLING_TASKS: tuple[PoolingTask, ...] = get_args(PoolingTask)
