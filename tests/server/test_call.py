"""Logprobs that a server gives, and those that it does not."""

import pytest

from quire.config.server import ServerConfig
from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import ConfigError, InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.server.call import Call, check_logprobs

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def call(endpoint: str, params: SamplingParams) -> Call:
    return Call(endpoint, [[1]], [None], params, "tools", False, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("endpoint", "params", "field"),
    [
        (CHAT, SamplingParams(logprobs=6), "top_logprobs"),
        (COMPLETIONS, SamplingParams(logprobs=6), "logprobs"),
        (CHAT, SamplingParams(prompt_logprobs=6), "prompt_logprobs"),
        (CHAT, SamplingParams(logprobs=0, logprob_token_ids=tuple(range(6))), "logprob_token_ids"),
    ],
)
def test_more_logprobs_than_the_server_gives(endpoint: str, params: SamplingParams, field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field} asks for 6, .* at most 5 .--max-logprobs") as caught:
        check_logprobs(call(endpoint, params), 5)
    assert caught.value.field == field
    check_logprobs(call(endpoint, params), 6)


def test_none_are_fewer_than_any() -> None:
    check_logprobs(call(CHAT, SamplingParams()), 0)


@pytest.mark.parametrize("most", [-1, MAX_LOGPROBS + 1])
def test_a_bound_that_cannot_be(most: int) -> None:
    with pytest.raises(ConfigError, match="max-logprobs"):
        ServerConfig(max_logprobs=most)
