"""Placement: which engine computes a request's prompt, which one answers, and who may have KV for either.

Engines with roles share a request: one computes the prompt and the first token, another fetches the KV meanwhile and
goes on. Roles are preferences: where an engine of one kind is missing, whoever is there does all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from quire.config.server import EngineRole, RoutingStrategy
from quire.core.request import Request
from quire.serving.journal import Entry
from quire.serving.routing import Loads, Routing, chunk_names

LEAST_SPLIT = 128
"""Tokens of a prompt, beyond what the answering engine has, from which on another engine computes them: fewer cost less
than the way."""
LEAST_PULLED = 128
"""Tokens that another engine must have more of, for it to be asked for them."""


class Placeable(Protocol):
    """An engine as far as placing goes: a client's, or one of the simulator's."""

    @property
    def number(self) -> int: ...

    @property
    def role(self) -> EngineRole: ...

    @property
    def kv_address(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...


E = TypeVar("E", bound=Placeable)


@dataclass(frozen=True, slots=True)
class Placed(Generic[E]):
    """Where a request goes."""

    client: E
    """Computes it, or its prompt alone where there is a decoder."""
    decoder: E | None = None
    """Goes on behind the first token."""
    holder: E | None = None
    """Has more of the prompt's KV than whoever computes it."""


class Placement:
    """Knows what engines were given, by routing."""

    def __init__(self, strategy: RoutingStrategy) -> None:
        self._prompts = Routing(strategy)
        self._answers = Routing(strategy)

    def place(self, entry: Entry, ready: Sequence[E], loads: Loads) -> Placed[E]:
        """Where a request is to be computed from where it stands; `ready` has at least one engine."""
        request = entry.request
        if not any(client.kv_address for client in ready):
            return Placed(self.choose_decoder(request, ready, loads))
        cached = self._cached(request, ready)  # before anyone is chosen, who then counts as having it
        answering = self.choose_decoder(request, ready, loads)
        prefills = [client for client in ready if client.role == "prefill" and client.kv_address]
        num_left = len(request.prompt.tokens) - cached[answering.number]
        if not prefills or num_left < LEAST_SPLIT or not _may_split(entry, answering):
            return Placed(answering, holder=_holder(request, answering, ready, cached))
        computing = _chosen(self._prompts, request, prefills, loads)
        return Placed(computing, answering, _holder(request, computing, ready, cached))

    def choose_decoder(self, request: Request, ready: Sequence[E], loads: Loads) -> E:
        """Who answers: an engine that is not for prompts alone, where there is one."""
        others = [client for client in ready if client.role != "prefill"]
        return _chosen(self._answers, request, others or ready, loads)

    def forget(self, client: Placeable) -> None:
        """Its cache is gone."""
        self._prompts.forget(client.number)
        self._answers.forget(client.number)

    def _cached(self, request: Request, ready: Sequence[Placeable]) -> dict[int, int]:
        """Tokens of a prompt that each engine should have, by its number."""
        names = chunk_names(request)
        routings = (self._prompts, self._answers)
        return {client.number: max(each.num_cached(client.number, names) for each in routings) for client in ready}


def first_token_only(request: Request) -> Request:
    """The request as a prefill engine gets it: it ends behind its next token."""
    count = 1 + max((len(emitted.tokens) for emitted in request.resume), default=0)
    params = msgspec.structs.replace(request.params, max_tokens=count, min_tokens=min(request.params.min_tokens, count))
    return msgspec.structs.replace(request, params=params)


def _may_split(entry: Entry, decoder: Placeable) -> bool:
    """Whether another engine can go on behind the next token, with KV that has names."""
    request, params = entry.request, entry.request.params
    if decoder.role == "prefill" or not decoder.kv_address:
        return False
    if request.pooling is not None or params.prompt_logprobs is not None or not params.use_prefix_cache:
        return False
    lengths = {len(tokens) for tokens in entry.emitted.values()}
    if len(lengths) != 1:
        return False
    [length] = lengths
    has_more = params.max_tokens is None or params.max_tokens > length + 1
    return has_more and len(request.prompt.tokens) + length + 1 < decoder.max_model_len


def _holder(request: Request, computing: E, ready: Sequence[E], cached: dict[int, int]) -> E | None:
    """An engine that has more of the prompt than the one that computes it."""
    peers = [client for client in ready if client is not computing and client.kv_address]
    if not peers or not computing.kv_address or not request.params.use_prefix_cache:
        return None
    best = max(peers, key=lambda client: cached[client.number])
    return best if cached[best.number] - cached[computing.number] >= LEAST_PULLED else None


def _chosen(routing: Routing, request: Request, clients: Sequence[E], loads: Loads) -> E:
    number = routing.choose(request, [client.number for client in clients], loads)
    return next(client for client in clients if client.number == number)
