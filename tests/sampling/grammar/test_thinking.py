"""Where an output thinks, against the plainest way to say it."""

from hypothesis import given
from hypothesis import strategies as st

from quire.core.reasoning import ReasoningPart
from quire.sampling.grammar.thinking import Stage, Thinking, most_tokens

TOKENS = st.lists(st.integers(1, 3), max_size=24)
MARKER = st.lists(st.integers(1, 3), min_size=1, max_size=4)


def stage_of(part: ReasoningPart, tokens: list[int]) -> Stage:
    """Looks at the whole output at once."""
    rest = tuple(tokens)
    if not part.is_open:
        size = len(part.start)
        if len(rest) < size and part.start[: len(rest)] == rest:
            return Stage.BEFORE
        if rest[:size] != part.start:
            return Stage.BEHIND
        rest = rest[size:]
    size = len(part.end)
    ends = any(rest[place : place + size] == part.end for place in range(len(rest) - size + 1))
    return Stage.BEHIND if ends else Stage.WITHIN


@given(MARKER, MARKER, st.booleans(), TOKENS)
def test_stages(start: list[int], end: list[int], is_open: bool, tokens: list[int]) -> None:
    part = ReasoningPart(start=tuple(start), end=tuple(end), is_open=is_open)
    thinking = Thinking(part)
    for place, token in enumerate(tokens):
        assert thinking.stage is stage_of(part, tokens[:place])
        assert thinking.forced is None
        thinking.advance(token)
    assert thinking.stage is stage_of(part, tokens)


@given(MARKER, st.integers(0, 6), TOKENS)
def test_a_budget_is_kept(end: list[int], budget: int, tokens: list[int]) -> None:
    """However it thinks, behind so many tokens comes the end, and nothing else."""
    part = ReasoningPart(start=(9,), end=tuple(end), is_open=True, budget=budget)
    thinking, said = Thinking(part), list[int]()
    for token in [*tokens, *[8] * (budget + len(end))]:
        if thinking.stage is Stage.BEHIND:
            break
        said.append(token if thinking.forced is None else thinking.forced)
        thinking.advance(said[-1])
    assert thinking.stage is Stage.BEHIND
    assert tuple(said[-len(end) :]) == tuple(end)
    # what looked like the end and was not may be as long as the end, less one
    assert len(said) <= budget + 2 * len(end)


def test_what_opens_it() -> None:
    thinking = Thinking(ReasoningPart(start=(1, 2), end=(3,)))
    assert thinking.opening == 1
    thinking.advance(1)
    assert thinking.opening == 2
    thinking.advance(2)
    assert (thinking.stage, thinking.opening) == (Stage.WITHIN, None)


@given(MARKER, MARKER, st.booleans(), st.integers(0, 4), TOKENS)
def test_thinking_is_over_after_so_many_tokens(
    start: list[int], end: list[int], is_open: bool, budget: int, tokens: list[int]
) -> None:
    part = ReasoningPart(start=tuple(start), end=tuple(end), is_open=is_open, budget=budget)
    thinking = Thinking(part)
    for number in range(most_tokens(part, budget)):
        drawn = tokens[number] if number < len(tokens) else 1
        thinking.advance(drawn if thinking.forced is None else thinking.forced)
    assert thinking.stage is Stage.BEHIND
