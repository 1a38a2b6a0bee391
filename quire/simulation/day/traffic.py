"""Traffic of a day: conversations in the order in which they begin.

No trace of a whole day is part of quire. Random traffic has the published statistics of public data sets, which are
named beside their numbers; recorded conversations and traces take its place where files of them are given.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from random import Random

from quire.simulation.day.conversation import Conversation, Stretch, Turn
from quire.simulation.day.curve import DAY, moments
from quire.simulation.lengths import SHAREGPT_INPUT, SHAREGPT_OUTPUT, Lengths, LogNormal
from quire.simulation.workload import FIRST_PRIVATE, SimulatedRequest

# Means of LMSYS-Chat-1M as its paper gives them (Zheng et al. 2023, table 1); the spreads are ours.
LMSYS_ASKED = LogNormal(mean=69.5, spread=1.3)
LMSYS_ANSWERED = LogNormal(mean=214.5, spread=0.9)
LMSYS_TURNS = 2.0
READING = LogNormal(mean=60.0, spread=1.0)
"""Seconds in which a person reads an answer and writes the next question. No public data set says; a choice."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How people use a service."""

    asked: Lengths
    answered: Lengths
    mean_turns: float
    """Of a conversation; each turn is equally likely the last."""
    system_prompts: int = 1
    system_tokens: int = 0
    """What each of those has."""


FASTCHAT = Habits(LMSYS_ASKED, LMSYS_ANSWERED, LMSYS_TURNS, system_tokens=40)
"""The chat demo that LMSYS-Chat-1M was recorded at; 40 tokens is about what Vicuna's system prompt has."""
SHAREGPT = Habits(SHAREGPT_INPUT, SHAREGPT_OUTPUT, LMSYS_TURNS, system_prompts=8, system_tokens=500)
"""Assistants with a system prompt each: longer questions and answers, as in ShareGPT."""


def random_conversations(habits: Habits, count: int, seed: int, seconds: float = DAY) -> Iterator[Conversation]:
    """So many conversations, over the first `seconds` of a day. The same seed gives the same ones."""
    starts = moments(count, Random(f"{seed} starts"), seconds)
    lengths, turns, labels = (Random(f"{seed} {name}") for name in ("lengths", "turns", "labels"))
    for number, start in enumerate(starts):
        yield Conversation(
            FIRST_PRIVATE + number,
            start,
            iter(_random_turns(habits, lengths, turns)),
            _system_prompt(habits, labels),
        )


def recorded_conversations(
    recorded: Sequence[Sequence[Turn]], habits: Habits, count: int, seed: int, seconds: float = DAY
) -> Iterator[Conversation]:
    """So many, each like one of those recorded, which know no times of day."""
    starts = moments(count, Random(f"{seed} starts"), seconds)
    chosen, labels = Random(f"{seed} chosen"), Random(f"{seed} labels")
    for number, start in enumerate(starts):
        turns = chosen.choice(recorded)
        yield Conversation(FIRST_PRIVATE + number, start, iter(turns), _system_prompt(habits, labels))


def traced_conversations(requests: Iterable[SimulatedRequest]) -> Iterator[Conversation]:
    """A trace's requests: each a conversation of one turn, at its moment, with the pieces that the trace names."""
    for request in requests:
        block = request.hash_block
        whole = request.hash_ids[: (request.input_tokens - 1) // block]
        shared = tuple(Stretch(hash_id, block) for hash_id in whole)
        own = request.input_tokens - block * len(shared)
        turn = Turn(own, request.output_tokens)
        yield Conversation(FIRST_PRIVATE + request.number, request.arrival, iter((turn,)), shared)


def pause_after_answer(random: Random) -> float:
    """Seconds until a person has read an answer and asks again."""
    return random.lognormvariate(log(READING.mean) - READING.spread**2 / 2, READING.spread)


def _random_turns(habits: Habits, lengths: Random, turns: Random) -> list[Turn]:
    stop, drawn = 1 / habits.mean_turns, []
    while True:
        drawn.append(Turn(habits.asked.draw(lengths), habits.answered.draw(lengths), pause_after_answer(lengths)))
        if turns.random() < stop:
            return drawn


def _system_prompt(habits: Habits, labels: Random) -> tuple[Stretch, ...]:
    if not habits.system_tokens:
        return ()
    return (Stretch(labels.randrange(habits.system_prompts), habits.system_tokens),)
