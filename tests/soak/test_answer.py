"""Two answers are equal but for ids, times and what was cached; anything else is told by its place."""

import pytest

from tests.soak.answer import comparable, completion_tokens, difference, texts_of
from tests.soak.streams import STREAMS


def chat(**changed):
    message = {"content": "Hello", "role": "assistant"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
    return {"id": "a", "created": 1, "choices": [{"message": message, "logprob": -0.5}], "usage": usage} | changed


def test_ids_times_and_caches_may_differ():
    usage = chat()["usage"] | {"prompt_tokens_details": {"cached_tokens": 2}}
    assert difference(comparable(chat(id="b", created=9, usage=usage)), comparable(chat()), loose=False) is None


def test_a_difference_is_told_by_its_place():
    other = comparable(chat(usage={"prompt_tokens": 3, "completion_tokens": 1}))
    assert difference(other, comparable(chat()), loose=False) == ".usage.completion_tokens: '1' for '2'"
    assert difference({"a": 1}, {}, loose=False) == ".a is only in the answer"
    assert difference([1], [1, 2], loose=False) is not None


@pytest.mark.parametrize(
    ("found", "loose", "is_equal"), [(-0.5001, True, True), (-0.5001, False, False), (-0.6, True, False)]
)
def test_last_digits_count_unless_sums_depend_on_the_batch(found, loose, is_equal):
    assert (difference({"logprob": found}, {"logprob": -0.5}, loose=loose) is None) == is_equal


def test_anthropics_cached_tokens_are_prompt_tokens():
    usage = {"input_tokens": 1, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 0, "output_tokens": 2}
    assert comparable(usage) == {"input_tokens": 8, "output_tokens": 2}
    assert completion_tokens({"usage": usage}) == 2


def test_texts_are_found_wherever_they_stand():
    calls = {"tool_calls": [{"function": {"name": "look_up", "arguments": "{}"}}]}
    assert texts_of({"choices": [{"message": {"content": "Hi"} | calls}]}) == ["Hi", "{}"]


def test_a_stream_that_ends_twice_is_heard():
    stream = STREAMS["chunks"]()
    for line in ('data: {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}', *["data: [DONE]"] * 2):
        stream.hear(line)
    assert (stream.ends, stream.pieces, stream.answer()["choices"]["0"]["text"]) == (2, 1, "a")
