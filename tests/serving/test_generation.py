"""A generation gives its reader all that is new, pauses what is not read, and ends what is not wanted."""

import asyncio
from pathlib import Path

import pytest

from quire.core.errors import DeadlineExceeded, InvalidRequest, RequestFailed, RequestTooLarge
from quire.core.logprobs import PositionLogprobs, PromptSpan
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.status import Status
from quire.observe.metrics import Metrics
from quire.serving.generation import MOST_UNREAD, Generation
from quire.serving.journal import Entry
from quire.serving.messages import PromptNews, Refused, SequenceNews
from quire.text.load import load_tokenizer
from quire.text.tokenizer import Tokenizer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def tokenizer(tiny_chat: Path) -> Tokenizer:
    return load_tokenizer(tiny_chat)


class FakeFleet:
    """Remembers what it is asked, and says what the test wants said."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.asked: list[tuple[object, ...]] = []

    def submit(self, entry: Entry) -> None:
        self.entries.append(entry)

    def end(self, entry: Entry, index: int | None = None, status: Status = Status.ABORTED) -> None:
        self.asked.append(("end", entry.request.id, index, status))
        for each in list(entry.emitted) if index is None else [index]:
            entry.emitted.pop(each, None)

    def hold(self, entry: Entry) -> None:
        entry.is_held = True
        self.asked.append(("hold", entry.request.id))

    def resume(self, entry: Entry) -> None:
        entry.is_held = False
        self.asked.append(("let go", entry.request.id))

    def say(self, news: SequenceNews) -> None:
        entry = next(entry for entry in self.entries if entry.request.id == news.request_id)
        if entry.take(news):
            entry.listener.news(news)


class Setup:
    def __init__(self, tokenizer: Tokenizer, *prompts: str, **params: object) -> None:
        self.fleet = FakeFleet()
        self.tokenizer = tokenizer
        self.finished: list[str] = []
        requests = [
            (Request(id=f"r{i}", prompt=Prompt(tuple(tokenizer.encode(text))), params=SamplingParams(**params)), text)
            for i, text in enumerate(prompts or ("hello",))
        ]
        self.generation = Generation(
            requests,
            tokenizer,
            self.fleet,
            endpoint="/v1/completions",
            slow_reader_timeout=0.05,
            metrics=Metrics(),
            work=lambda tokens, params: float(tokens),
            on_finished=lambda reader, entry: self.finished.append(f"{reader.request.id} {reader.finish_reason}"),
        )
        self.generation.start()

    def say(self, text: str, status: Status | None = None, *, request: str = "r0", index: int = 0) -> None:
        self.fleet.say(SequenceNews(request, index, self.tokenizer.encode(text, add_special_tokens=False), status))


async def test_deltas_join_to_the_whole_text(tokenizer):
    setup = Setup(tokenizer)
    setup.say("one ")
    stream = setup.generation.deltas()
    first = await anext(stream)
    setup.say("two ")
    setup.say("three", Status.LENGTH)
    rest = await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    [output] = setup.generation.outputs()
    assert output.outputs[0].text == "one two three" == "".join(delta.text for delta in (*first, *rest))
    assert [len(first), len(rest)] == [1, 1], "what came while nobody read is one piece"
    assert rest[0].finish_reason == "length"
    assert setup.finished == ["r0 length"]


async def test_several_prompts_and_sequences_keep_apart(tokenizer):
    setup = Setup(tokenizer, "a", "b", n=2)
    setup.say("x", Status.STOPPED, request="r1", index=1)
    setup.say("y", Status.STOPPED, request="r0", index=0)
    [*deltas] = await anext(setup.generation.deltas())
    assert [(delta.prompt, delta.index, delta.text) for delta in deltas] == [(0, 0, "y"), (1, 1, "x")]
    assert not setup.generation.is_finished


async def test_a_stop_string_ends_the_sequence_here_and_in_the_engine(tokenizer):
    setup = Setup(tokenizer, stop="END")
    setup.say("text EN")
    setup.say("D and more")
    assert ("end", "r0", 0, Status.STOPPED) in setup.fleet.asked
    [output] = await setup.generation.wait()
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("text ", "stop")
    assert output.outputs[0].stop_reason == "END"
    setup.say("late")  # the engine had not heard of it yet
    assert setup.generation.outputs()[0].outputs[0].text == "text "


async def test_refusals_and_losses_are_raised(tokenizer):
    for told, kind in (
        (Refused("r0", "too long", "prompt", True), RequestTooLarge),
        (Refused("r0", "odd", None, False), InvalidRequest),
    ):
        setup = Setup(tokenizer)
        setup.fleet.entries[0].listener.refused(told)
        with pytest.raises(kind):
            await setup.generation.accepted()
    setup = Setup(tokenizer)
    setup.fleet.entries[0].listener.lost(RequestFailed("all engines are gone"))
    with pytest.raises(RequestFailed, match="all engines are gone"):
        await setup.generation.wait()


async def test_a_failed_sequence_fails_the_call_and_ends_its_others(tokenizer):
    setup = Setup(tokenizer, "a", "b")
    setup.say("", Status.FAILED)
    with pytest.raises(RequestFailed, match="r0 failed"):
        await setup.generation.wait()
    assert ("end", "r1", None, Status.ABORTED) in setup.fleet.asked
    assert sorted(setup.finished) == ["r0 error", "r1 abort"]


async def test_a_stream_that_fails_says_so_rather_than_end(tokenizer):
    setup = Setup(tokenizer)
    setup.say("part", Status.FAILED)
    with pytest.raises(RequestFailed):
        await anext(setup.generation.deltas())


async def test_a_deadline_without_a_token_is_an_error_and_with_tokens_a_reason(tokenizer):
    setup = Setup(tokenizer)
    setup.say("", Status.QUEUE_TIMEOUT)
    with pytest.raises(DeadlineExceeded, match="got no token within"):
        await setup.generation.wait()
    setup = Setup(tokenizer)
    setup.say("part")
    setup.say("", Status.DEADLINE)
    [output] = await setup.generation.wait()
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("part", "deadline")


async def test_accepted_waits_for_every_request(tokenizer):
    setup = Setup(tokenizer, "a", "b")
    waiting = asyncio.ensure_future(setup.generation.accepted())
    setup.fleet.entries[0].listener.accepted()
    await asyncio.sleep(0)
    assert not waiting.done()
    setup.fleet.entries[1].listener.accepted()
    await waiting


async def test_cancel_ends_all_once(tokenizer):
    setup = Setup(tokenizer)
    setup.say("part")
    setup.generation.cancel()
    setup.generation.cancel()
    assert setup.fleet.asked == [("end", "r0", None, Status.ABORTED)]
    assert setup.finished == ["r0 abort"]
    [output] = await setup.generation.wait()
    assert output.outputs[0].finish_reason == "abort"


async def test_a_slow_reader_pauses_its_sequence_and_reading_lets_it_go(tokenizer):
    setup = Setup(tokenizer, max_tokens=None)
    stream = setup.generation.deltas(idle=0.001)
    await anext(stream)  # it has begun to read: from here on it is slow
    for _ in range(MOST_UNREAD + 1):
        setup.say("x")
    assert setup.fleet.asked == [("hold", "r0")]
    await anext(stream)
    assert setup.fleet.asked[-1] == ("let go", "r0")


async def test_a_reader_that_never_comes_back_is_dropped(tokenizer):
    setup = Setup(tokenizer, max_tokens=None)
    dropped = asyncio.Event()
    setup.generation.on_drop = dropped.set
    stream = setup.generation.deltas(idle=0.001)
    await anext(stream)
    for _ in range(MOST_UNREAD + 1):
        setup.say("x")
    await dropped.wait()
    assert ("end", "r0", None, Status.ABORTED) in setup.fleet.asked
    assert setup.finished == ["r0 error"]


async def test_whoever_waits_for_the_whole_is_never_slow(tokenizer):
    setup = Setup(tokenizer, max_tokens=None)
    for _ in range(2 * MOST_UNREAD):
        setup.say("x")
    assert setup.fleet.asked == []


async def test_silence_yields_nothing_now_and_then(tokenizer):
    setup = Setup(tokenizer)
    assert await anext(setup.generation.deltas(idle=0.001)) == []


async def test_prompt_logprobs_that_come_twice_count_once(tokenizer):
    setup = Setup(tokenizer, "hello there", prompt_logprobs=0)
    listener = setup.fleet.entries[0].listener
    length = len(setup.fleet.entries[0].request.prompt.tokens)
    span = PromptSpan(1, [PositionLogprobs(5, -1.0, 1)] * (length - 1))
    listener.prompt_news(PromptNews("r0", span))
    listener.prompt_news(PromptNews("r0", span))
    setup.say("x", Status.LENGTH)
    [output] = await setup.generation.wait()
    assert len(output.prompt_logprobs) == length
