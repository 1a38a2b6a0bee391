"""The thinking part of an output, as parameters say it."""

import msgspec
import pytest

from quire.core.errors import InvalidRequest
from quire.core.reasoning import ReasoningPart
from quire.core.sampling_params import SamplingParams


def test_it_travels_with_the_parameters() -> None:
    given = SamplingParams(reasoning=ReasoningPart(start=(5,), end=[6, 7], is_open=True, budget=0))
    assert given.reasoning is not None
    assert given.reasoning.end == (6, 7)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(given), type=SamplingParams) == given


@pytest.mark.parametrize(
    "fields", [{"start": ()}, {"end": (-1,)}, {"end": 5}, {"budget": -1}, {"is_open": 1}, {"start": (1,) * 65}]
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ReasoningPart(**{"start": (1,), "end": (2,)} | fields)
    assert caught.value.field == "reasoning"
