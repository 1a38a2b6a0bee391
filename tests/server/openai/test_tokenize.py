"""Texts to tokens and back over HTTP."""

from tests.server.openai.conftest import Ask
from tests.server.openai.fake_serving import FakeServing


def test_there_and_back(ask: Ask, serving: FakeServing) -> None:
    text = "Hello wörld <|im_end|>"
    body = ask("/tokenize", prompt=text, return_token_strs=True)
    tokens = serving.tokenizer.encode(text)
    assert (body["tokens"], body["count"], body["max_model_len"]) == (tokens, len(tokens), 64)
    assert body["token_strs"] == [serving.tokenizer.id_to_token(token) for token in tokens]
    assert ask("/detokenize", tokens=tokens) == {"prompt": text, "content": text}


def test_a_conversation(ask: Ask, serving: FakeServing) -> None:
    body = ask("/tokenize", messages=[{"role": "user", "content": "Hi"}], add_generation_prompt=False)
    assert ask("/detokenize", tokens=body["tokens"])["prompt"] == "<|im_start|>user\nHi<|im_end|>\n"
    assert body["token_strs"] is None
    ask("/tokenize", messages=[{"role": "user", "content": "Hi"}], n=2)
    assert serving.ignored == ["n"]


def test_ids_that_are_no_tokens_are_refused(ask: Ask, serving: FakeServing) -> None:
    assert ask("/detokenize", tokens=[]) == {"prompt": "", "content": ""}
    error = ask("/detokenize", 400, tokens=[1, serving.tokenizer.vocab_size])["error"]
    assert error["param"] == "tokens"


def test_unknown_models(ask: Ask) -> None:
    ask("/tokenize", 404, prompt="x", model="gpt")
    ask("/detokenize", 404, tokens=[1], model="gpt")
