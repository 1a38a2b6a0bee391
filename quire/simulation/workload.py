"""A request of a simulated client: lengths and labels, no tokens. Tokens are made when it arrives.

Token values mean nothing here, only which of them are equal: requests that share a prefix share its tokens, and
nothing else is ever equal by chance.
"""

import msgspec

from quire.core.prompt import Prompt
from quire.core.request import DEFAULT_TENANT, Request
from quire.core.sampling_params import SamplingParams

FILLER = 0
"""Follows a marker; the chain of names makes what follows a marker as unique as the marker."""
END = 1
"""What a sequence samples when its answer is complete."""
FIRST_SAMPLED = 2
FIRST_SHARED = 1 << 30
FIRST_PRIVATE = 1 << 31
"""Markers, one range for each kind of content; a token takes 32 bits in the chain of names."""


class SimulatedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one client will ask, and how long the answer will turn out to be."""

    number: int
    arrival: float
    """Seconds from the start of the simulation."""
    input_tokens: int
    output_tokens: int
    """Where each of its sequences ends by itself. Only the device knows: a scheduler cannot see an answer's length."""
    max_tokens: int | None = None
    """What the client asks for at most; None leaves it to the context."""
    tenant: str = DEFAULT_TENANT
    priority: int = 0
    hash_ids: tuple[int, ...] = ()
    """Names of the first pieces of the prompt; requests with equal ids at the start share those pieces."""
    hash_block: int = 512
    """Tokens in each of those pieces; the last may be cut short by the end of the prompt."""
    n: int = 1
    beam_width: int = 1

    @property
    def id(self) -> str:
        return str(self.number)

    def prompt(self) -> tuple[int, ...]:
        """Its tokens. A piece is a marker and filler."""
        tokens: tuple[int, ...] = ()
        for hash_id in self.hash_ids:
            tokens += (FIRST_SHARED + hash_id, *(FILLER,) * (self.hash_block - 1))
        own = self.input_tokens - len(tokens)
        if own > 0:
            return (*tokens, FIRST_PRIVATE + self.number, *(FILLER,) * (own - 1))
        return tokens[: self.input_tokens]


class RequestMaker:
    """Turns simulated requests into real ones as they arrive."""

    def __init__(self) -> None:
        self._params: dict[tuple[int, int | None, int], SamplingParams] = {}

    def make(self, simulated: SimulatedRequest) -> Request:
        """The request as a client would have sent it."""
        return Request(
            id=simulated.id,
            prompt=Prompt(simulated.prompt()),
            params=self._params_of(simulated),
            arrival=simulated.arrival,
            tenant=simulated.tenant,
            eos_token_ids=(END,),
        )

    def _params_of(self, simulated: SimulatedRequest) -> SamplingParams:
        # few distinct ones among many requests, and each is validated when it is made
        key = (simulated.n, simulated.max_tokens, simulated.priority)
        params = self._params.get(key)
        if params is None:
            params = SamplingParams(n=simulated.n, max_tokens=simulated.max_tokens, priority=simulated.priority)
            self._params[key] = params
        return params
