"""Routing: how the logits of a router become the experts of a token and their weights."""

from dataclasses import dataclass
from typing import Literal

Scores = Literal["softmax", "sigmoid", "sparsemixer"]
"""What a token's weight for an expert is: its share among all experts, a score of its own, or (Phi-3.5-MoE) its share
among those that come near it and were not chosen before it.
"""
GroupScore = Literal["largest", "two largest"]
"""What a group of experts is ranked by: its best score (DeepSeek V2), or the sum of its two best (V3)."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Scores of all experts, of which the best `top_k` are chosen; the chosen ones' scores are their weights."""

    top_k: int
    scores: Scores = "softmax"
    renormalize: bool = True
    """Whether the weights of a token's experts are divided by their sum."""
    scale: float = 1.0
    """What all weights are multiplied by at the end."""
    groups: int = 1
    """Experts lie in so many groups of neighbours …"""
    top_groups: int = 1
    """… of which a token chooses so many before it chooses experts among theirs."""
    group_score: GroupScore = "two largest"
    nearness: float = 0.02
    """Of sparsemixer: logits come near the best if they lie below it by no more than this, as a share of the larger of
    the best logit and their own magnitude."""
