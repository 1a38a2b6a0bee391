"""Bodies of /tokenize: a text or a conversation."""

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.openai.body import ChatBody
from quire.protocol.openai.tokenize_body import read_detokenize_body, read_tokenize_body

USER = {"role": "user", "content": "Hi"}


def test_a_text() -> None:
    body = read_tokenize_body({"prompt": "x", "add_special_tokens": False, "return_token_strs": True})
    assert (body.prompt, body.add_special_tokens, body.spelled) == ("x", False, True)


def test_a_conversation() -> None:
    body = read_tokenize_body({"messages": [USER], "add_generation_prompt": False, "model": "m"})
    assert isinstance(body.prompt, ChatBody)
    assert (body.model, body.prompt.add_generation_prompt, body.add_special_tokens) == ("m", False, False)


@pytest.mark.parametrize(
    ("given", "field"),
    [({}, "prompt"), ({"prompt": "x", "messages": [USER]}, "prompt")],
)
def test_neither_and_both(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_tokenize_body(given)
    assert caught.value.field == field


def test_no_tokens_are_no_text() -> None:
    assert read_detokenize_body({"tokens": []}).tokens == []
