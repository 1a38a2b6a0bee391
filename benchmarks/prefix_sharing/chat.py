"""Many users of one assistant: every chat begins with the same system prompt of 1,000 tokens."""

import asyncio
import time
from dataclasses import dataclass
from random import Random
from statistics import median

from benchmarks.peers.server_process import RunningServer
from quire.bench.endpoint import Endpoint
from quire.bench.http.address import parse_address
from quire.bench.http.client import Client
from quire.bench.load_run import run_load
from quire.bench.planned import PlannedRequest
from quire.bench.record import RequestRecord
from quire.bench.sender import Sender
from quire.bench.vocabulary import Vocabulary

_LONGEST_ANSWER = 3600.0


@dataclass(frozen=True, slots=True)
class ChatWorkload:
    """Sizes in tokens."""

    users: int = 32
    at_once: int = 8
    """Requests under way; the next user comes when one has left."""
    system: int = 1000
    question: int = 64
    answer: int = 64

    def __str__(self) -> str:
        return (
            f"{self.users} users, {self.at_once} at a time: a system prompt of {self.system:,} tokens, questions of "
            f"{self.question} and answers of {self.answer}"
        )

    def requests(self, vocabulary: Vocabulary, seed: int) -> list[PlannedRequest]:
        """A new system prompt for every seed, the same for all its users."""
        draw = Random(f"{seed} chat")
        system = {"role": "system", "content": vocabulary.text(self.system, draw)}
        questions = [{"role": "user", "content": vocabulary.text(self.question, draw)} for _ in range(self.users)]
        return [
            PlannedRequest(number, messages=[system, question], output_tokens=self.answer)
            for number, question in enumerate(questions)
        ]


@dataclass(frozen=True, slots=True)
class ChatFigures:
    """One round of one server; times in seconds, rates per second."""

    ttft: float
    """The median of the users."""
    e2e: float
    """The same, to the end of their answers."""
    requests: float
    output: float
    """Tokens of answers."""
    cached: float
    """Share of the prompts' tokens that the server took from its cache."""


def run_chat(server: RunningServer, workload: ChatWorkload, vocabulary: Vocabulary, seed: int) -> ChatFigures:
    records = asyncio.run(_send(server, workload, workload.requests(vocabulary, seed)))
    wrong = [record for record in records if not record.is_ok or record.output_tokens != workload.answer]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(records)} answers were not whole, the first: {wrong[0]}")
    seconds = max(record.ended for record in records) - min(record.sent for record in records)
    prompts = sum(record.prompt_tokens or 0 for record in records)
    return ChatFigures(
        ttft=median(record.ttft or 0.0 for record in records),
        e2e=median(record.e2e or 0.0 for record in records),
        requests=len(records) / seconds,
        output=sum(record.output_tokens or 0 for record in records) / seconds,
        cached=sum(record.cached_tokens or 0 for record in records) / prompts,
    )


async def _send(server: RunningServer, workload: ChatWorkload, requests: list[PlannedRequest]) -> list[RequestRecord]:
    clock = time.perf_counter_ns
    client = Client(parse_address(server.url), {}, clock)
    sender = Sender(client, Endpoint("chat", server.model, 0.0, {}), Vocabulary(), _LONGEST_ANSWER, clock)
    try:
        return await run_load(sender, requests, [0.0] * len(requests), workload.at_once, lambda record: None)
    finally:
        client.close()
