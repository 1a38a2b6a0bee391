"""Text as it comes is the text that comes at once, and nothing is left of a stream that was left early."""

import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.engine.engine import Engine
from quire.engine.stream import TextStream

PARAMS = SamplingParams(max_tokens=24, temperature=0.8, seed=5)


def at_once(engine: Engine, prompt: str) -> str:
    engine.add(prompt, PARAMS)
    while engine.has_work:
        for output in engine.step():
            return output.outputs[0].text
    raise AssertionError("nothing finished")


def test_pieces_are_the_whole_text(engine: Engine) -> None:
    expected = at_once(engine, "the quick")
    with TextStream(engine, "the quick", PARAMS) as stream:
        pieces = list(stream)
    assert "".join(pieces) == expected == stream.output.outputs[0].text
    assert len([piece for piece in pieces if piece]) > 1
    assert stream.output.finished


def test_leaving_early_ends_the_request(engine: Engine) -> None:
    with TextStream(engine, "the quick", PARAMS) as stream:
        first = next(iter(stream))
    assert stream.output.outputs[0].finish_reason == "abort"
    assert stream.output.outputs[0].text.startswith(first)
    assert not engine.has_work
    assert engine.partial_outputs() == []
    assert at_once(engine, "the quick").startswith(first)


def test_an_error_in_the_reader_ends_the_request(engine: Engine) -> None:
    def read() -> None:
        with TextStream(engine, "the quick", PARAMS) as stream:
            for _ in stream:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    assert engine.partial_outputs() == []


def test_a_request_that_was_never_stepped_ends_too(engine: Engine) -> None:
    with TextStream(engine, "the quick", PARAMS) as stream:
        pass
    assert stream.output.outputs[0].finish_reason == "abort"
    assert engine.partial_outputs() == []


def test_a_bad_prompt_is_refused_and_leaves_nothing(engine: Engine) -> None:
    with pytest.raises(InvalidRequest):
        TextStream(engine, [10**6], PARAMS)
    assert engine.partial_outputs() == []
