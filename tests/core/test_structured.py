"""Languages as Python and messages write them."""

import json

import msgspec
import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.core.structured import MAX_GRAMMAR_LENGTH, StructuredOutput

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


class Modelled:
    """What pydantic's models have and nothing more."""

    @staticmethod
    def model_json_schema() -> dict[str, object]:
        return SCHEMA


def test_a_schema_is_text_however_it_is_given() -> None:
    text = StructuredOutput(json=json.dumps(SCHEMA))
    assert StructuredOutput.of(SCHEMA) == StructuredOutput.of(Modelled) == text == StructuredOutput.of(text)
    assert StructuredOutput.of({"json": SCHEMA}) == text
    assert StructuredOutput.of({"choice": ["a", "b"]}) == StructuredOutput(choice=("a", "b"))
    assert SamplingParams(structured=Modelled).structured == text
    assert SamplingParams(structured={"regex": "a+"}).structured == StructuredOutput(regex="a+")


@pytest.mark.parametrize(
    "given", [5, [SCHEMA], {"a": {1, 2}}, {"regex": 5}, {"json": "x", "regex": "y"}, {"choice": []}]
)
def test_what_is_no_language_is_refused(given: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(structured=given)
    assert caught.value.field == "structured"


def test_it_has_a_size_and_a_limit() -> None:
    assert StructuredOutput(choice=("ab", "c")).num_characters == 3
    assert StructuredOutput(json_object=True).num_characters == 0
    with pytest.raises(InvalidRequest, match="1048577 characters"):
        StructuredOutput(regex="x" * (MAX_GRAMMAR_LENGTH + 1))


def test_it_travels() -> None:
    for given in (StructuredOutput.of(SCHEMA), StructuredOutput(choice=("a", "b")), StructuredOutput(json_object=True)):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(given), type=StructuredOutput) == given
        assert len({given, msgspec.structs.replace(given)}) == 1
