"""Bodies with many texts have them tokenized together, off the event loop, and not one by one on it."""

from typing import Any

import pytest

from tests.server.openai.fake_serving import FakeServing, fake_client

TEXTS = [f"text {number}" for number in range(50)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": TEXTS}),
        ("/v1/embeddings", {"input": TEXTS}),
        ("/v1/score", {"text_1": "a", "text_2": TEXTS}),
        ("/pooling", {"input": TEXTS}),
    ],
)
def test_many_texts_are_tokenized_together(
    serving: FakeServing, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    together: list[int] = []
    encode_all = serving.encode_all

    async def watched(prompts: Any, add_special_tokens: bool = True) -> list[list[int]]:
        together.append(len(prompts))
        return await encode_all(prompts, add_special_tokens)

    monkeypatch.setattr(serving, "encode_all", watched)
    answer = fake_client(serving).post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert len(TEXTS) in together
