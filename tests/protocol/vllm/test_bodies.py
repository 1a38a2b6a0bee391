"""Bodies of vLLM's own routes."""

import math
from typing import Any

import pytest

from quire.core.beams import BeamOptions
from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import InvalidRequest
from quire.core.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from quire.protocol.ignored import Ignored
from quire.protocol.openai.answers import AnswerHead
from quire.protocol.openai.body import read_chat_body, read_completion_body
from quire.protocol.vllm.batch_chat import read_batch_chat_body
from quire.protocol.vllm.generate_body import read_generate_body
from quire.protocol.vllm.scoring_body import ScoringWriter, read_scoring_body

USER = {"role": "user", "content": "Hi"}
SCORING = {"query": "q", "items": ["a"], "label_token_ids": [5, 6]}


def refused(read: Any, body: dict[str, Any]) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    return caught.value.field


def test_tokens_to_continue_have_the_whole_context_unless_told_otherwise() -> None:
    body = read_generate_body({"token_ids": [1, 2], "sampling_params": {}})
    assert (body.tokens, body.params.max_tokens, body.stream) == ([1, 2], None, False)
    given = {"max_tokens": 5, "logprobs": 2, "detokenize": False, "stop": None}
    params = read_generate_body({"token_ids": [1], "sampling_params": given, "priority": 3}).params
    assert (params.max_tokens, params.logprobs, params.detokenize, params.priority) == (5, 2, False, 3)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"token_ids": [], "sampling_params": {}}, "token_ids"),
        ({"token_ids": [-1], "sampling_params": {}}, "token_ids"),
        ({"token_ids": [1]}, "sampling_params"),
        ({"token_ids": [1], "sampling_params": {"detokenize": False, "stop": ["a"]}}, "stop"),
        ({"token_ids": [1], "sampling_params": {"guided_decoding": {"json": {}}}}, "guided_decoding"),
        ({"token_ids": [1], "sampling_params": {}, "kv_transfer_params": {"a": 1}}, "kv_transfer_params"),
    ],
)
def test_tokens_that_cannot_be_continued(body: dict[str, Any], field: str) -> None:
    assert refused(read_generate_body, body) == field


def test_what_changes_no_token_is_noted() -> None:
    ignored = Ignored()
    read_generate_body({"token_ids": [1], "sampling_params": {"nothing": 1}, "token_offsets": []}, ignored)
    read_batch_chat_body({"messages": [[USER], [USER]], "provider": {}}, ignored)
    read_scoring_body({**SCORING, "anything": 1}, ignored)
    assert list(ignored) == ["token_offsets", "sampling_params.nothing", "provider", "anything"]
    with pytest.raises(InvalidRequest, match=r"sampling_params\.nothing is not supported"):
        read_generate_body({"token_ids": [1], "sampling_params": {"nothing": 1}}, Ignored(strict=True))


def test_conversations_share_what_is_asked() -> None:
    bodies = read_batch_chat_body({"messages": [[USER], [USER, USER]], "max_tokens": 3})
    assert [len(body.messages) for body in bodies] == [1, 2]
    assert bodies[0].params == bodies[1].params


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [USER]}, "messages"),
        ({"messages": [[]]}, "messages"),
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ],
)
def test_what_several_conversations_may_not_ask_for(given: dict[str, Any], field: str) -> None:
    assert refused(read_batch_chat_body, {"messages": [[USER]], **given}) == field


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"label_token_ids": None}, "label_token_ids"),
        ({"label_token_ids": [1, 1]}, "label_token_ids"),
        ({"items": []}, "items"),
        ({"query": None}, "query"),
    ],
)
def test_scores_that_cannot_be_given(given: dict[str, Any], field: str) -> None:
    assert refused(read_scoring_body, {**SCORING, **given}) == field


@pytest.mark.parametrize("softmax", [True, False])
def test_a_score_is_the_first_labels(softmax: bool) -> None:
    asked = read_scoring_body({**SCORING, "apply_softmax": softmax})
    found = {5: Logprob(math.log(0.2)), 6: Logprob(math.log(0.1)), 9: Logprob(math.log(0.5), 1)}
    said = CompletionOutput(0, "x", [9], logprobs=[found], finish_reason="length")
    output = RequestOutput("r", None, [1, 2], None, [said], True, RequestMetrics(0.0))
    answer = ScoringWriter(asked, AnswerHead("r1", 0, "m", "fp")).whole([output])
    assert answer["id"] == "generative-scoring-r1"
    assert answer["data"][0]["score"] == pytest.approx(2 / 3 if softmax else 0.2)
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}


def test_beams() -> None:
    body = read_completion_body({"prompt": "x", "use_beam_search": True, "n": 3, "length_penalty": 2, "top_p": 0.5})
    assert body.beams == BeamOptions(2.0)
    assert read_completion_body({"prompt": "x", "length_penalty": 1.0}).beams is None
    for given in ({"stop": ["a"]}, {"presence_penalty": 1}, {"guided_regex": "a"}, {"best_of": 4}):
        assert refused(read_completion_body, {"prompt": "x", "use_beam_search": True, **given}) is not None
    assert refused(read_chat_body, {"messages": [USER], "length_penalty": 2}) == "length_penalty"


def test_small_differences_of_vllms() -> None:
    assert read_chat_body({"messages": [USER], "logprobs": "true", "top_logprobs": 2}).params.logprobs == 2
    assert read_chat_body({"messages": [USER], "logprobs": "false"}).params.logprobs is None
    assert read_chat_body({"messages": [USER], "prompt_logprobs": -1}).params.prompt_logprobs == MAX_LOGPROBS
    named = read_chat_body({"messages": [USER], "logprobs": True, "top_logprobs": 5, "logprob_token_ids": [3]}).params
    assert (named.logprobs, named.logprob_token_ids) == (0, (3,))
    assert refused(read_chat_body, {"messages": [USER], "logprob_token_ids": [3]}) == "logprob_token_ids"
    assert read_completion_body({"prompt": "x", "truncation_side": "right"}).keeps_start
