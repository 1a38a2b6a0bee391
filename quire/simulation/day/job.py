"""Job: one request on its way through the instances of a cluster."""

from typing import Literal

from quire.simulation.day.conversation import Conversation, Stretch

Origin = Literal["disk", "peer"]


class Job:
    """Counts of tokens and moments."""

    __slots__ = (
        "answered", "arrival", "computed", "conversation", "decoder", "end_tick", "fetched", "joined", "last_told",
        "origin", "prompt", "row", "sent", "shared", "stretches", "told",
    )  # fmt: skip

    def __init__(
        self, conversation: Conversation, arrival: float, stretches: tuple[Stretch, ...], answered: int
    ) -> None:
        self.conversation = conversation
        self.arrival = arrival
        self.stretches = stretches
        """What its prompt is made of, its conversation's own last."""
        self.prompt = sum(stretch.tokens for stretch in stretches)
        """Tokens to compute before the next one is sampled: of an answer too, where it lost its blocks or moved."""
        self.shared = self.prompt - stretches[-1].tokens
        """Those of them that others have too."""
        self.answered = answered
        """Tokens of the whole answer."""
        self.told = 0
        """Tokens of it that its reader has."""
        self.last_told = 0.0
        """When its reader got a token last; only kept where the next does not come in the next step."""
        self.computed = 0
        """Tokens of the prompt that are computed or were found, where it is now."""
        self.fetched = 0
        """Tokens at the beginning of the prompt whose KV came, or comes, from elsewhere."""
        self.origin: Origin = "disk"
        """From where."""
        self.joined = 0.0
        """When the instance that has it could begin."""
        self.decoder = -1
        """Number of the instance that goes on behind the first token, where this one computes the prompt alone."""
        self.sent = 0
        """Tokens of the prompt's KV that are there already or on their way."""
        self.row = 0
        """Changes whenever it begins or stops to decode."""
        self.end_tick = 0
        """The tick of its instance at which it ends."""
