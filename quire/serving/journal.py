"""Journal: what the front knows of every live request, enough to hand it to another engine where it stands."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from quire.core.errors import QuireError
from quire.core.request import Emitted, Request
from quire.core.status import Status
from quire.serving.board import Board, Figure
from quire.serving.client import EngineClient
from quire.serving.messages import PromptNews, Refused, SequenceNews


class Listener(Protocol):
    """Whoever reads the request: told in the order in which things happen."""

    def accepted(self) -> None:
        """The engine has taken it in."""

    def refused(self, refusal: Refused) -> None:
        """It can never run."""

    def news(self, news: SequenceNews) -> None:
        """A sequence has new tokens, or has ended."""

    def prompt_news(self, news: PromptNews) -> None:
        """Logprobs of a part of the prompt."""

    def lost(self, error: QuireError) -> None:
        """No engine can complete it."""


@dataclass(slots=True, eq=False)
class Entry:
    """One live request."""

    request: Request
    listener: Listener
    endpoint: str = ""
    """The route it came by."""
    client: EngineClient | None = None
    """The engine that has it; None while it waits for one."""
    emitted: dict[int, list[int]] = field(default_factory=dict)
    """Tokens of the sequences that have not ended, by index."""
    is_accepted: bool = False
    losses: int = 0
    """Engines lost with it since it last got a token."""
    moves: int = 0
    """Engines lost with it in all."""
    is_held: bool = False
    work: float = 0.0
    """Tokens that it is expected to cost in all."""
    has_begun: bool = False
    """Whether it has got a token."""
    is_prefill: bool = False
    """Whether its engine computes the prompt and the next token only."""
    decoder: EngineClient | None = None
    """The engine that is to go on after that; None once it is lost."""
    prefilled: set[int] = field(default_factory=set)
    """Sequences that have got that token."""
    handovers: int = 0
    """Times another engine has gone on with it by plan."""

    def __post_init__(self) -> None:
        self.emitted = {index: [] for index in range(self.request.params.num_sequences)}

    def to_submit(self) -> Request:
        """The request as an engine must take it: new, or from where it stands."""
        if not self.moves and not self.handovers:
            return self.request
        resume = tuple(Emitted(index, tuple(tokens)) for index, tokens in self.emitted.items())
        return msgspec.structs.replace(self.request, resume=resume)

    def take(self, news: SequenceNews) -> bool:
        """Note new tokens or an end; false if the sequence has already ended here."""
        if news.index not in self.emitted:
            return False
        self.losses = 0
        if news.status is not None:
            del self.emitted[news.index]
        else:
            self.emitted[news.index].extend(news.tokens)
        return True

    def without_end_of_prefill(self, news: SequenceNews) -> SequenceNews:
        """What a prefill engine says of a sequence, with the end that was its own taken out."""
        if news.status is not Status.LENGTH:
            return news
        self.prefilled.add(news.index)
        return msgspec.structs.replace(news, status=None)

    @property
    def is_prefilled(self) -> bool:
        """Whether all its sequences may go on elsewhere."""
        return self.is_prefill and self.prefilled.issuperset(self.emitted)

    @property
    def replica(self) -> int:
        """The number of the engine that has it; -1 while it waits for one."""
        return -1 if self.client is None else self.client.number

    @property
    def is_over(self) -> bool:
        return not self.emitted

    @property
    def state(self) -> str:
        """Where it stands, in a word."""
        if self.is_held:
            return "held"
        return "running" if self.has_begun else "waiting"

    @property
    def num_emitted(self) -> int:
        return sum(len(tokens) for tokens in self.emitted.values())


class Journal:
    """All live requests by id, and how much of them still waits for its first token."""

    def __init__(self, board: Board | None = None) -> None:
        """`board` is where several fronts tell each other what waits."""
        self._entries: dict[str, Entry] = {}
        self._board = board or Board()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting_tokens(self) -> int:
        """Prompt tokens of requests that have not begun, on all fronts."""
        return int(self._board.total(Figure.WAITING_TOKENS))

    @property
    def waiting_work(self) -> float:
        """What those are expected to cost, answers included."""
        return self._board.total(Figure.WAITING_WORK)

    def open(self, entry: Entry) -> None:
        self._entries[entry.request.id] = entry
        self._board.add(Figure.WAITING_TOKENS, len(entry.request.prompt.tokens))
        self._board.add(Figure.WAITING_WORK, entry.work)

    def get(self, request_id: str) -> Entry | None:
        """None once it has ended: what an engine still reports about it is out of date."""
        return self._entries.get(request_id)

    def begin(self, entry: Entry) -> None:
        """It has its first token; later calls change nothing."""
        if not entry.has_begun:
            entry.has_begun = True
            self._board.add(Figure.WAITING_TOKENS, -len(entry.request.prompt.tokens))
            self._board.add(Figure.WAITING_WORK, -entry.work)

    def close(self, entry: Entry) -> None:
        """It has ended; calling this again changes nothing."""
        if self._entries.pop(entry.request.id, None) is not None:
            self.begin(entry)

    def entries(self) -> list[Entry]:
        """In the order in which they came."""
        return list(self._entries.values())

    def on_client(self, client: EngineClient) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.client is client]

    def loads(self) -> Counter[int]:
        """Tokens of the requests that each engine has: prompts, and what it has answered so far."""
        loads: Counter[int] = Counter()
        for entry in self._entries.values():
            tokens = len(entry.request.prompt.tokens) + entry.num_emitted
            loads[entry.replica] += tokens
            if entry.decoder is not None:
                loads[entry.decoder.number] += tokens
        return loads
