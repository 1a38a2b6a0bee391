"""Every field has a bound, and a message that names the field, what was given and what is allowed."""

import math

import msgspec
import pytest

from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_N, SamplingParams
from quire.core.structured import StructuredOutput

BAD = [
    ("n", 0, "n is 0; it must be a whole number from 1 to 128"),
    ("n", MAX_N + 1, "n is 129; it must be a whole number from 1 to 128"),
    ("n", 1.5, "n is 1.5; it must be a whole number from 1 to 128"),
    ("n", True, "n is True; it must be a whole number from 1 to 128"),
    ("temperature", -0.1, "temperature is -0.1; it must be a number from 0 to 100"),
    ("temperature", math.nan, "temperature is nan; it must be a number from 0 to 100"),
    ("temperature", math.inf, "temperature is inf; it must be a number from 0 to 100"),
    ("top_p", 0, "top_p is 0; it must be a number above 0 and at most 1"),
    ("top_p", 1.01, "top_p is 1.01; it must be a number above 0 and at most 1"),
    ("top_k", -2, "top_k is -2; it must be a whole number from -1 to 2147483648"),
    ("min_p", 2, "min_p is 2; it must be a number from 0 to 1"),
    ("seed", 1 << 64, None),
    ("stop", "", "stop is ''; it must be strings of 1 to 1024 characters"),
    ("stop", ["x"] * 65, "stop is '65 entries'; it must be a list of 0 to 64 entries"),
    ("stop", [3], "stop is 3; it must be strings of 1 to 1024 characters"),
    ("stop", 3, "stop is 3; it must be a list of strings"),
    ("stop_token_ids", [-1], "stop_token_ids is -1; it must be token ids, which are whole numbers from 0"),
    ("max_tokens", 0, None),
    ("min_tokens", -1, None),
    ("presence_penalty", 2.5, "presence_penalty is 2.5; it must be a number from -2 to 2"),
    ("frequency_penalty", "1", "frequency_penalty is '1'; it must be a number from -2 to 2"),
    ("repetition_penalty", 0, "repetition_penalty is 0; it must be a number from 0.01 to 100"),
    ("repetition_penalty", 5e-324, "repetition_penalty is 5e-324; it must be a number from 0.01 to 100"),
    ("temperature", 10**400, ""),
    ("logit_bias", {5: 101}, "logit_bias[5] is 101; it must be a number from -100 to 100"),
    ("logit_bias", {-5: 1}, None),
    ("bad_words", [""], None),
    ("allowed_token_ids", [], "allowed_token_ids is '0 entries'; it must be a list of 1 to 1048576 entries"),
    ("logprobs", MAX_LOGPROBS + 1, None),
    ("prompt_logprobs", -1, None),
    ("ignore_eos", 1, "ignore_eos is 1; it must be true or false"),
    ("deadline", 0, "deadline is 0; it must be a number above 0 and at most 1e+09"),
    ("cache_salt", "", "cache_salt is ''; it must be text of 1 to 256 characters"),
    ("cache_salt", 7, "cache_salt is 7; it must be text of 1 to 256 characters"),
    ("priority", 1 << 40, None),
]


@pytest.mark.parametrize(("field", "value", "message"), BAD, ids=[f"{field}={value!r}"[:40] for field, value, _ in BAD])
def test_a_value_out_of_bounds_is_refused_with_its_field(field, value, message):
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field
    assert str(caught.value) == message if message else str(caught.value).startswith(field)


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(stop="x" * 5000)
    assert len(str(caught.value)) < 200


def test_min_tokens_may_not_exceed_max_tokens():
    with pytest.raises(InvalidRequest, match="min_tokens is 17; it must be at most max_tokens, which is 16"):
        SamplingParams(min_tokens=17)
    assert SamplingParams(min_tokens=17, max_tokens=None).min_tokens == 17


def test_stop_strings_need_text():
    with pytest.raises(InvalidRequest, match="detokenize is false"):
        SamplingParams(stop="end", detokenize=False)


def test_one_stop_string_is_a_list_of_one():
    assert SamplingParams(stop="end").stop == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_none_is_an_empty_list_as_in_vllm():
    params = SamplingParams(stop=None, stop_token_ids=None, bad_words=None)
    assert (params.stop, params.stop_token_ids, params.bad_words) == ((), (), ())


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError, match="temprature"):
        msgspec.json.decode(b'{"temprature": 1.0}', type=SamplingParams)


def test_what_arrives_over_the_wire_is_validated_too():
    with pytest.raises(msgspec.ValidationError, match="top_p is 7"):
        msgspec.json.decode(b'{"top_p": 7}', type=SamplingParams)


def test_round_trip():
    params = SamplingParams(
        n=2,
        stop=["x"],
        logit_bias={3: -1.5},
        structured=StructuredOutput(choice=("yes", "no")),
        seed=-5,
        cache_salt="a",
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


@pytest.mark.parametrize(
    "fields", [{}, {"regex": "a", "json": "{}"}, {"json_object": False}, {"choice": ()}, {"json": ""}]
)
def test_structured_output_is_exactly_one_language(fields):
    with pytest.raises(InvalidRequest) as caught:
        StructuredOutput(**fields)
    assert caught.value.field == "structured"
