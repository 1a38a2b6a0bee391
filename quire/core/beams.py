"""BeamOptions: what a request says about a beam search. Frozen, and nothing of how it is done."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BeamOptions:
    """Names follow vLLM's; the search's width is the number of sequences that the request wants."""

    length_penalty: float = 1.0
    """A sequence's score is its logprob over its length to this power: above 1 prefers longer ones."""
    early_stopping: bool = False
    """End as soon as there are as many finished sequences as beams."""
