"""The pacer finds the chunk that a dummy device can do in time, and follows when the device changes."""

import pytest

from quire.scheduler.pacing import SMALLEST_CHUNK, Pacer, StepLoad


def seconds(load: StepLoad, speed: float = 1.0) -> float:
    base = 0.004 + load.prompt_tokens * 2e-5 + load.prompt_pairs * 1e-9
    return (base + load.decodes * 1e-5 + load.decode_context * 1e-8) / speed


def drive(pacer: Pacer, steps: int, speed: float = 1.0, context: int = 0) -> list[float]:
    times = []
    for step in range(steps):
        load = StepLoad(decodes=50 + step % 7, decode_context=20000 + 100 * (step % 11))
        chunk = pacer.prompt_tokens(load, context, most=8192)
        load = load.with_prompt(chunk, context)
        times.append(seconds(load, speed))
        pacer.observe(load, times[-1])
    return times


def test_steps_stay_under_the_target_and_use_most_of_it():
    times = drive(Pacer(target=0.030), 400)
    assert max(times) <= 0.030
    assert times[-1] > 0.8 * 0.030


def test_a_slower_device_is_noticed_within_steps():
    pacer = Pacer(target=0.030)
    drive(pacer, 200)
    times = drive(pacer, 300, speed=0.5)
    assert sum(time > 0.030 for time in times) <= 5


def test_long_contexts_get_smaller_chunks():
    pacer = Pacer(target=0.030)
    for context in (0, 10000, 30000):
        drive(pacer, 100, context=context)
    load = StepLoad(decodes=50, decode_context=20000)
    assert pacer.prompt_tokens(load, 30000, 8192) < pacer.prompt_tokens(load, 0, 8192)


def test_without_running_streams_nothing_is_held_back():
    assert Pacer(target=0.001).prompt_tokens(StepLoad(), 0, 5000) == 5000


def test_prompts_move_however_tight_the_target():
    pacer = Pacer(target=1e-6)
    drive(pacer, 20)
    assert pacer.prompt_tokens(StepLoad(decodes=9), 0, 8192) == SMALLEST_CHUNK
    assert pacer.prompt_tokens(StepLoad(decodes=9), 0, 3) == 3


def test_a_load_counts_attention_pairs():
    load = StepLoad(decodes=1).with_prompt(10, context=100)
    assert (load.prompt_tokens, load.prompt_pairs) == (10, 10 * 100 + 50)
    assert load.features() == pytest.approx([1.0, 0.01, 1050e-7, 0.01, 0.0])
