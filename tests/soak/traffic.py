"""Clients that ask at random and judge what they get: a request ends once, in a promised way, with its right text."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jsonschema

from tests.soak.answer import completion_tokens, difference, is_beginning, texts_of
from tests.soak.asks import Ask
from tests.soak.client import PATIENT, Client, Manner
from tests.soak.hostile import hostile
from tests.soak.launch import HEADERS
from tests.soak.outcome import (
    CUT,
    DEADLINE,
    FAULTY,
    FULL,
    HUNG,
    OVERLOADED,
    REFUSED,
    UNAVAILABLE,
    WHOLE,
    WRONG,
    Ended,
    Outcome,
)
from tests.soak.stage import Stage, Target

_LONGEST = 240.0
"""Seconds after which a request hangs."""
_TWICE = 2
"""Times a reference is asked for: the second time prefixes are cached, and the answer must be the same."""


@dataclass(frozen=True, slots=True)
class Question:
    """An ask, where it is asked and the answer of an undisturbed server."""

    target: Target
    ask: Ask
    wanted: Any


async def references(stage: Stage, width: int) -> list[Question]:
    """Every answer while nothing happens; raises if an ask has two of them, or counts its tokens wrong."""
    gate = asyncio.Semaphore(width)

    async def learn(target: Target, client: Client, ask: Ask) -> Question:
        async with gate:
            async with asyncio.timeout(_LONGEST):
                answers = [await client.perform(ask) for _ in range(_TWICE)]
        for answer in answers:
            if (told := fault_of(ask, answer, answers[0], loose=target.loose)) is not None:
                raise AssertionError(f"{ask.name} on a quiet server: {told}")
        return Question(target, ask, answers[0])

    questions = []
    for target in stage.targets:
        client = Client(target.url, HEADERS, keeps_alive=True)
        try:
            questions += await asyncio.gather(*(learn(target, client, ask) for ask in target.asks))
        finally:
            await client.close()
    return questions


def fault_of(ask: Ask, answer: Any, wanted: Any, *, loose: bool) -> str | None:
    """What is wrong with an answer, in words."""
    if (told := difference(answer, wanted, loose=loose)) is not None:
        return told
    if ask.tokens is not None and completion_tokens(answer) != ask.tokens:
        return f"usage tells {completion_tokens(answer)} tokens where there are {ask.tokens}"
    if ask.schema is not None:
        written = [text for text in texts_of(answer) if text.strip()]
        if not any(_fits(text, ask.schema) for text in written):
            return f"{written} do not fit the schema"
    return None


def _fits(text: str, schema: dict[str, Any]) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


class Traffic:
    """Some clients at once."""

    def __init__(
        self,
        stage: Stage,
        questions: list[Question],
        violate: Callable[[str, str], None],
        outcomes: Counter[str],
    ) -> None:
        self._stage, self._questions = stage, questions
        self._violate, self._outcomes = violate, outcomes
        self._is_over = False

    def end(self) -> None:
        """No new requests; those that run are read to their ends."""
        self._is_over = True

    async def client(self, chance: random.Random, pause: float) -> None:
        """One client after another, each with a connection of its own or several requests on one."""
        while not self._is_over:
            target = chance.choice(self._stage.targets)
            mine = [each for each in self._questions if each.target is target]
            client = Client(target.url, HEADERS, keeps_alive=chance.random() < 0.5)
            try:
                for _ in range(chance.randint(1, 6)):
                    if not self._is_over:
                        await self._one(client, target, mine, chance)
                        await asyncio.sleep(chance.expovariate(1 / pause))
            finally:
                await client.close()

    async def _one(self, client: Client, target: Target, mine: list[Question], chance: random.Random) -> None:
        began = time.monotonic()
        if chance.random() < 0.05:
            name, (path, body) = chance.choice(sorted(hostile(target.model).items()))
            outcome = await _within(_hostile(client, path, body))
        else:
            question = chance.choice(mine)
            name, manner = question.ask.name, _manner(question.ask, chance)
            outcome = await _within(_asked(client, question, manner))
        outcome = self._excused(outcome, name, began)
        self._outcomes[outcome.kind] += 1
        if outcome.kind in FAULTY:
            self._violate(outcome.kind, f"{name}, begun {time.monotonic() - began:.1f} s ago: {outcome.detail}")

    def _excused(self, outcome: Outcome, name: str, began: float) -> Outcome:
        """Broken connections and full disks are what they are only where they were caused."""
        if outcome.kind == CUT and (
            self._stage.is_excused("front", began) or (name == "socket" and self._stage.is_excused("network", began))
        ):
            return outcome
        if outcome.kind == FULL and self._stage.is_excused("disk", began):
            return outcome
        if outcome.kind in (CUT, FULL, WRONG, HUNG):
            return Outcome(HUNG if outcome.kind == HUNG else WRONG, f"{outcome.kind}: {outcome.detail}")
        return outcome


def _manner(ask: Ask, chance: random.Random) -> Manner:
    drawn = chance.random()
    if drawn < 0.06 and ask.style in ("whole", "chunks", "responses", "messages", "lines"):
        return Manner(leave_after=chance.randint(1, 8))
    if drawn < 0.10:
        return Manner(rest=chance.uniform(0.5, 4.0))
    if drawn < 0.13:
        return Manner(deadline=chance.uniform(0.05, 2.0))
    return PATIENT


async def _within(work: Any) -> Outcome:
    try:
        async with asyncio.timeout(_LONGEST):
            return await work  # type: ignore[no-any-return]
    except TimeoutError:
        return Outcome(HUNG, f"nothing for {_LONGEST:.0f} s")
    except Ended as ended:
        return Outcome(ended.kind, ended.detail)
    except Exception as error:  # a client's own border: whatever it could not read is an answer that is wrong
        return Outcome(WRONG, f"{type(error).__name__}: {error}")


async def _asked(client: Client, question: Question, manner: Manner) -> Outcome:
    answer = await client.perform(question.ask, manner)
    told = fault_of(question.ask, answer, question.wanted, loose=question.target.loose)
    if told is not None and manner.deadline is not None and is_beginning(answer, question.wanted):
        return Outcome(DEADLINE)  # not every API has a word for it
    return Outcome(WHOLE) if told is None else Outcome(WRONG, told)


async def _hostile(client: Client, path: str, body: bytes) -> Outcome:
    status, text = await client.send_hostile(path, body)
    if status in (429, 503):
        return Outcome(OVERLOADED if status == 429 else UNAVAILABLE, text)
    is_told = "error" in text or "detail" in text
    return Outcome(REFUSED) if 400 <= status < 500 and is_told else Outcome(WRONG, f"{status} {text[:300]}")
