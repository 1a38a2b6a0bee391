"""Who gets a request: the choices of a real router, or those of a real server whose engines have roles."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from quire.config.server import RoutingStrategy
from quire.core.errors import QuireError
from quire.router.choice import MemberChoice
from quire.router.prefix import HEAD_TOKENS, Prefix
from quire.serving.journal import Entry
from quire.serving.messages import PromptNews, Refused, SequenceNews
from quire.serving.placement import Placed, Placement
from quire.serving.routing import CHUNK
from quire.simulation.day.conversation import Stretch
from quire.simulation.day.instance import Instance
from quire.simulation.day.job import Job
from quire.simulation.workload import FIRST_PRIVATE, RequestMaker, SimulatedRequest

_NAME_BITS = 24
"""Of a chunk's number in its prompt, behind the name of its stretch."""


class Placing(Protocol):
    """Chooses instances for jobs in the order of their arrival."""

    def place(self, job: Job, now: float) -> Placed[Instance]: ...


class ByRouter:
    """`quire route` over instances that each do all of a request."""

    def __init__(self, strategy: RoutingStrategy, instances: Sequence[Instance]) -> None:
        self._choice = MemberChoice(strategy)
        self._instances = instances

    def place(self, job: Job, now: float) -> Placed[Instance]:
        for instance in self._instances:
            instance.now = now
        conversation = job.conversation
        prefix = Prefix(
            tokens=job.prompt,
            names=chunk_names(job.stretches),
            home=conversation.name.to_bytes(8, "big"),
            home_tokens=conversation.shared_tokens + min(HEAD_TOKENS, conversation.first),
        )
        return Placed(self._choice.choose(prefix, self._instances))


class ByRoles:
    """A server that knows what its engines are for, and which of them have a prompt's KV."""

    def __init__(self, strategy: RoutingStrategy, instances: Sequence[Instance]) -> None:
        self._placement = Placement(strategy)
        self._instances = instances
        self._maker = RequestMaker()

    def place(self, job: Job, now: float) -> Placed[Instance]:
        for instance in self._instances:
            instance.now = now
        *shared, _ = job.stretches
        simulated = SimulatedRequest(
            job.conversation.name - FIRST_PRIVATE, now, job.prompt, job.answered,
            hash_ids=tuple(stretch.name for stretch in shared), hash_block=shared[0].tokens if shared else 1,
        )  # fmt: skip
        entry = Entry(self._maker.make(simulated), _Nobody())
        return self._placement.place(entry, self._instances, self)

    def loads(self) -> Mapping[int, float]:
        return {instance.number: float(instance.load) for instance in self._instances}


class _Nobody:
    """Reads no answers."""

    def accepted(self) -> None: ...
    def refused(self, refusal: Refused) -> None: ...
    def news(self, news: SequenceNews) -> None: ...
    def prompt_news(self, news: PromptNews) -> None: ...
    def lost(self, error: QuireError) -> None: ...


def chunk_names(stretches: Sequence[Stretch]) -> list[int]:
    """A name for every whole chunk of a prompt, equal where all tokens up to its end are."""
    names: list[int] = []
    end = 0
    for stretch in stretches:
        end += stretch.tokens
        base = stretch.name << _NAME_BITS
        names.extend(range(base | len(names), base | end // CHUNK))
    return names
