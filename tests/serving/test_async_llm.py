"""AsyncLLM with real engine processes: killed, stuck, refused and closed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from quire.core.errors import ConfigError, DeadlineExceeded, InvalidRequest, Overloaded, RequestTooLarge
from quire.core.outputs import RequestOutput
from quire.core.request import NO_ANSWER
from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from quire.serving.async_llm import AsyncLLM

pytestmark = pytest.mark.anyio
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
async def llm(tiny_chat: Path) -> AsyncIterator[AsyncLLM]:
    async with await AsyncLLM.create(str(tiny_chat), num_gpu_blocks_override=256) as started:
        yield started


@pytest.fixture(scope="module")
def alone(tiny_chat: Path) -> list[RequestOutput]:
    """What the same prompts give in one process that nobody disturbs."""
    llm = LLM(str(tiny_chat), num_gpu_blocks_override=256)
    outputs = llm.generate([f"prompt {i}" for i in range(6)], GREEDY, use_tqdm=False)
    llm.close()
    return outputs


async def last(llm: AsyncLLM, prompt: str, params: SamplingParams = GREEDY) -> RequestOutput:
    return [output async for output in llm.generate(prompt, params)][-1]


def pid(llm: AsyncLLM) -> int:
    return llm.fleet.supervisor.slots[0].client.pid


async def books_balance(llm: AsyncLLM) -> bool:
    checked = await llm.engine_calls.check(llm.fleet.supervisor.slots[0].client)
    return checked.problem is None and checked.used_blocks == 0 and len(llm.fleet.dispatcher.journal) == 0


async def test_texts_are_those_of_the_offline_engine(llm, alone):
    outputs = await asyncio.gather(*(last(llm, f"prompt {i}") for i in range(6)))
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in alone]
    assert await books_balance(llm)


async def test_every_output_is_a_prefix_of_the_next(llm):
    texts = [output.outputs[0].text async for output in llm.generate("prompt", GREEDY)]
    assert len(texts) > 1
    assert all(after.startswith(before) for before, after in pairwise(texts))


async def test_killed_engines_lose_nothing(llm, alone):
    for _ in range(2):
        running = [asyncio.ensure_future(last(llm, f"prompt {i}")) for i in range(6)]
        started = llm.generate("the first token", GREEDY)
        first = await anext(started)  # so that there is something to lose
        os.kill(pid(llm), signal.SIGKILL)
        outputs = await asyncio.gather(*running)
        assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in alone]
        # on a busy machine the first output may already hold all tokens
        assert len([first, *[o async for o in started]][-1].outputs[0].token_ids) == 40
    assert llm.fleet.supervisor.slots[0].restarts >= 2
    assert await books_balance(llm)


async def test_random_sampling_goes_on_with_the_same_noise(llm):
    params = SamplingParams(temperature=1.0, seed=11, n=2, max_tokens=40, ignore_eos=True)
    expected = await last(llm, "prompt", params)
    stream = llm.generate("prompt", params)
    first = await anext(stream)
    os.kill(pid(llm), signal.SIGKILL)
    moved = [first, *[output async for output in stream]][-1]
    assert [o.token_ids for o in moved.outputs] == [o.token_ids for o in expected.outputs]


async def test_signals_for_the_whole_group_leave_engines_to_the_front(llm):
    before = pid(llm)
    stream = llm.generate("prompt", GREEDY)
    first = await anext(stream)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(before, number)
    assert len([first, *[output async for output in stream]][-1].outputs[0].token_ids) == 40
    assert pid(llm) == before


async def test_an_engine_that_makes_no_progress_is_replaced(tiny_chat, alone):
    settings = {"num_gpu_blocks_override": 256, "step_timeout": 2.0}
    async with await AsyncLLM.create(str(tiny_chat), **settings) as llm:
        running = asyncio.ensure_future(last(llm, "prompt 0"))
        stuck = pid(llm)
        os.kill(stuck, signal.SIGSTOP)
        output = await running
        assert output.outputs[0].token_ids == alone[0].outputs[0].token_ids
        assert pid(llm) != stuck
        assert llm.fleet.supervisor.slots[0].restarts == 1


async def test_replicas_take_over_from_each_other(tiny_chat, alone):
    async with await AsyncLLM.create(str(tiny_chat), num_gpu_blocks_override=256, replicas=2) as llm:
        while not all(slot.client.is_ready for slot in llm.fleet.supervisor.slots):
            await asyncio.sleep(0.05)
        running = [asyncio.ensure_future(last(llm, f"prompt {i}")) for i in range(6)]
        clients, journal = llm.fleet.supervisor.ready(), llm.fleet.dispatcher.journal
        while not all(journal.on_client(client) for client in clients):
            await asyncio.sleep(0)
        os.kill(pid(llm), signal.SIGKILL)
        outputs = await asyncio.gather(*running)
        assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in alone]


async def test_leaving_the_loop_ends_the_request(llm):
    async for _ in llm.generate("prompt", SamplingParams(max_tokens=200, ignore_eos=True)):
        break
    for _ in range(3000):
        if await books_balance(llm):
            break
        await asyncio.sleep(0.01)
    assert await books_balance(llm), "the request goes on for nobody"


async def test_abort(llm):
    outputs = []
    async for output in llm.generate("prompt", SamplingParams(max_tokens=200, ignore_eos=True), "mine"):
        outputs.append(output)
        await llm.abort("mine")
    assert outputs[-1].outputs[0].finish_reason == "abort"


async def test_requests_that_cannot_run_are_refused(llm):
    with pytest.raises(RequestTooLarge, match="context holds 256"):
        await last(llm, "word " * 400)
    with pytest.raises(InvalidRequest, match="out of vocabulary"):
        async for _ in llm.generate([10**6]):
            pass


async def test_vectors_also_when_the_engine_is_lost(llm):
    before = await llm.embed("e1", [[5, 6, 7], [8]])
    asking = asyncio.ensure_future(llm.embed("e2", [[5, 6, 7], [8]] * 50))
    await asyncio.sleep(0)
    os.kill(pid(llm), signal.SIGKILL)
    after = await asking
    assert [pytest.approx(vector) for vector in before] == after[:2]
    assert len(after) == 100


async def test_vectors_and_answers_at_once(llm, alone):
    expected = await llm.embed("v1", [[place, 7, 9] for place in range(40)])
    asking = asyncio.ensure_future(llm.embed("v2", [[place, 7, 9] for place in range(40)]))
    outputs = await asyncio.gather(*(last(llm, f"prompt {i}") for i in range(6)))
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in alone]
    assert await asking == [pytest.approx(vector, abs=1e-4) for vector in expected]
    assert await books_balance(llm)


async def test_readouts_have_deadlines_and_end_with_their_client(llm):
    late = msgspec.structs.replace(NO_ANSWER, deadline=1e-6)
    with pytest.raises(DeadlineExceeded, match="got no token within"):
        await llm.pool("late", [[5, 6]] * 20, "embed", params=late)
    leaving = asyncio.ensure_future(llm.pool("left", [[5, 6, place] for place in range(500)], "token_embed"))
    while not llm.fleet.dispatcher.journal.entries():
        await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await llm.embed("next", [[5]])
    assert await books_balance(llm)


async def test_readouts_are_turned_away_where_too_much_waits(llm, monkeypatch):
    monkeypatch.setattr(llm.admission, "_most_tokens", 10)
    first = asyncio.ensure_future(llm.embed("first", [[5, 6, 7]] * 4))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="12 tokens are waiting and 3 more would exceed the 10 that may"):
        await llm.embed("second", [[5, 6, 7]])
    assert len(await first) == 4


async def test_a_readout_beyond_the_context_is_refused(llm):
    with pytest.raises(RequestTooLarge, match="a prompt has 257 tokens, and the model takes 256"):
        await llm.embed("long", [[5], [5] * 257])
    assert len(await llm.embed("whole", [[5] * 256])) == 1
    assert await books_balance(llm)


async def test_settings_that_cannot_work_are_told_once(tiny_chat):
    with pytest.raises(ConfigError, match="max-model-len is 100000"):
        await AsyncLLM.create(str(tiny_chat), max_model_len=100_000)


async def test_closing_fails_what_is_live(tiny_chat):
    llm = await AsyncLLM.create(str(tiny_chat), num_gpu_blocks_override=256)
    stream = llm.generate("prompt", SamplingParams(max_tokens=200, ignore_eos=True))
    await anext(stream)
    engine = pid(llm)
    await llm.close()
    with pytest.raises(Exception, match="shutting down"):
        async for _ in stream:
            pass
    with pytest.raises(ProcessLookupError):
        os.kill(engine, 0)
