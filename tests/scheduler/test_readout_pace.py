"""The pace finds what streams can bear, and one slow step does not mislead it."""

from quire.scheduler.pacing import StepLoad
from quire.scheduler.readout_pace import ALONE_EVERY, STRETCH, ReadoutPace


def drive(pace: ReadoutPace, steps: int, hiccup: int = -1) -> list[tuple[int, float]]:
    """Tokens and seconds of steps that take 10 ms, and 0.1 ms a token; one of them takes a second."""
    found: list[tuple[int, float]] = []
    for step in range(steps):
        tokens = pace.tokens(8, most=512)
        seconds = 1.0 if step == hiccup else 0.010 + 0.0001 * tokens
        pace.observe(StepLoad(prompt_tokens=tokens, decodes=8), seconds)
        found.append((tokens, seconds))
    return found


def test_steps_are_half_as_long_again_and_now_and_then_without_readouts() -> None:
    steps = drive(ReadoutPace(512), 100)
    assert max(seconds for _, seconds in steps) <= STRETCH * 0.010
    assert max(tokens for tokens, _ in steps) >= 45
    alone = [place for place, (tokens, _) in enumerate(steps) if not tokens]
    assert alone == list(range(0, 100, ALONE_EVERY + 1))


def test_a_slow_step_changes_little() -> None:
    for hiccup in (ALONE_EVERY + 1, ALONE_EVERY + 5):  # without readouts, and with them
        steps = drive(ReadoutPace(512), 100, hiccup)
        assert max(seconds for place, (_, seconds) in enumerate(steps) if place != hiccup) <= STRETCH * 0.010


def test_without_streams_nothing_is_held_back_and_beside_them_something_always_moves() -> None:
    pace = ReadoutPace(512)
    assert pace.tokens(0, most=512) == 512
    pace.observe(StepLoad(decodes=8), 0.001)
    pace.observe(StepLoad(prompt_tokens=16, decodes=8), 5.0)
    assert pace.tokens(8, most=512) == 16
    assert pace.tokens(8, most=3) == 3
