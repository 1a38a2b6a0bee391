"""OpenAI's own Python client against the real server and the default model."""

import json
import time
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.server.live import LiveServer

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
GREEDY = {"temperature": 0.0, "max_tokens": 12}


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Any:
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def ask(client: OpenAI, model: str, **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=QUESTION, **(GREEDY | more))


def test_chat(client: OpenAI, live_server: LiveServer) -> None:
    answer = ask(client, live_server.model)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_what_the_whole_answer_says_and_then_its_usage(client: OpenAI, live_server: LiveServer) -> None:
    whole = ask(client, live_server.model)
    chunks = list(ask(client, live_server.model, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == (
        whole.choices[0].message.content
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_include_usage_has_none(client: OpenAI, live_server: LiveServer) -> None:
    chunks = list(ask(client, live_server.model, stream=True))
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


def test_many_choices_come_in_order(client: OpenAI, live_server: LiveServer) -> None:
    answer = ask(client, live_server.model, n=2, temperature=1.0, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1]
    streamed: dict[int, str] = {0: "", 1: ""}
    for chunk in ask(client, live_server.model, n=2, temperature=1.0, seed=7, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert [streamed[0], streamed[1]] == [choice.message.content for choice in answer.choices]


def test_a_stop_string_ends_and_is_left_out(client: OpenAI, live_server: LiveServer) -> None:
    prompt = "one two three four five one two three four five one two three"
    full = client.completions.create(model=live_server.model, prompt=prompt, temperature=0, max_tokens=12)
    word = full.choices[0].text.split()[1]
    cut = client.completions.create(model=live_server.model, prompt=prompt, temperature=0, max_tokens=12, stop=[word])
    assert cut.choices[0].finish_reason == "stop"
    assert word not in cut.choices[0].text
    assert full.choices[0].text.startswith(cut.choices[0].text)


def test_a_seed_repeats_itself_and_another_does_not(client: OpenAI, live_server: LiveServer) -> None:
    hot: dict[str, Any] = {"temperature": 1.5, "max_tokens": 24}
    first, again, other = (
        ask(client, live_server.model, seed=seed, **hot).choices[0].message.content for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_chat_logprobs(client: OpenAI, live_server: LiveServer) -> None:
    answer = ask(client, live_server.model, logprobs=True, top_logprobs=3, max_tokens=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for entry in content:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == max(top.logprob for top in entry.top_logprobs)
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob)  # greedy


def test_completion_logprobs_and_echo(client: OpenAI, live_server: LiveServer) -> None:
    answer = client.completions.create(
        model=live_server.model, prompt="The sky is", temperature=0, max_tokens=3, logprobs=2, echo=True
    )
    assert answer.choices[0].text.startswith("The sky is")
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.token_logprobs is not None
    assert "".join(found.tokens) == answer.choices[0].text
    assert found.token_logprobs[0] is None
    assert all(value is not None and value <= 0 for value in found.token_logprobs[1:])


def test_completions_in_one_body_and_as_token_ids(client: OpenAI, live_server: LiveServer) -> None:
    prompts = ["The capital of France is", "Two and two make"]
    answer = client.completions.create(model=live_server.model, prompt=prompts, temperature=0, max_tokens=4)
    assert [choice.index for choice in answer.choices] == [0, 1]
    ids = [
        httpx.post(f"{live_server.url}/tokenize", json={"prompt": prompt}, timeout=60).json()["tokens"]
        for prompt in prompts
    ]
    by_ids = client.completions.create(model=live_server.model, prompt=ids, temperature=0, max_tokens=4)
    assert [choice.text for choice in by_ids.choices] == [choice.text for choice in answer.choices]
    single = client.completions.create(model=live_server.model, prompt=ids[0], temperature=0, max_tokens=4)
    assert single.choices[0].text == answer.choices[0].text


def test_a_completion_streams(client: OpenAI, live_server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": live_server.model, "prompt": "Once upon a time", "temperature": 0}
    whole = client.completions.create(**asked, max_tokens=10)
    streamed = client.completions.create(**asked, max_tokens=10, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text


def test_extensions_go_through_extra_body(client: OpenAI, live_server: LiveServer) -> None:
    extra = {"top_k": 1, "min_tokens": 5, "ignore_eos": True}
    answer = ask(client, live_server.model, temperature=1.0, max_tokens=5, extra_body=extra)
    greedy = ask(client, live_server.model, max_tokens=5, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 5
    assert answer.choices[0].message.content == greedy.choices[0].message.content


def test_models(client: OpenAI, live_server: LiveServer) -> None:
    models = list(client.models.list())
    assert live_server.model in [model.id for model in models]
    assert client.models.retrieve(live_server.model).id == live_server.model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_embeddings(client: OpenAI, live_server: LiveServer) -> None:
    """The client asks for base64 by itself."""
    texts = ["one text", "another one", "one text"]
    answer = client.embeddings.create(model=live_server.model, input=texts)
    assert [one.index for one in answer.data] == [0, 1, 2]
    assert answer.data[0].embedding == pytest.approx(answer.data[2].embedding, abs=1e-5)
    assert answer.data[0].embedding != pytest.approx(answer.data[1].embedding, abs=1e-2)
    plain = client.embeddings.create(model=live_server.model, input=texts, encoding_format="float")
    for packed, listed in zip(answer.data, plain.data, strict=True):
        assert packed.embedding == pytest.approx(listed.embedding, abs=1e-5)


def test_responses(client: OpenAI, live_server: LiveServer) -> None:
    answer = client.responses.create(
        model=live_server.model, input="Name the capital of France.", temperature=0, max_output_tokens=16
    )
    assert answer.output_text
    assert client.responses.retrieve(answer.id).output_text == answer.output_text
    again = client.responses.create(
        model=live_server.model,
        input="And of Italy?",
        previous_response_id=answer.id,
        temperature=0,
        max_output_tokens=16,
    )
    assert again.usage is not None
    assert answer.usage is not None
    assert again.usage.input_tokens > answer.usage.input_tokens  # the first exchange went before it
    client.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_responses_stream(client: OpenAI, live_server: LiveServer) -> None:
    asked: dict[str, Any] = {"model": live_server.model, "input": "Say hello.", "temperature": 0}
    whole = client.responses.create(**asked, max_output_tokens=8)
    with client.responses.stream(**asked, max_output_tokens=8) as stream:
        events: list[Any] = list(stream)
    assert events[0].type == "response.created"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == f"response.{whole.status}"
    assert events[-1].response.output_text == whole.output_text


def test_files_and_a_batch_from_end_to_end(client: OpenAI, live_server: LiveServer) -> None:
    bodies = [{"model": live_server.model, "messages": QUESTION, **GREEDY} for _ in range(3)]
    bodies.append({"model": live_server.model, "messages": QUESTION, "temperature": -1})
    lines = [
        {"custom_id": f"line-{place}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for place, body in enumerate(bodies)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    assert client.files.content(file.id).text == text
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"for": "a test"}
    )
    batch = wait_for_batch(client, batch.id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (3, 1)
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    good = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    bad = [json.loads(line) for line in client.files.content(batch.error_file_id).text.splitlines()]
    assert sorted(line["custom_id"] for line in good) == ["line-0", "line-1", "line-2"]
    expected = ask(client, live_server.model).choices[0].message.content
    assert {line["response"]["body"]["choices"][0]["message"]["content"] for line in good} == {expected}
    assert [line["custom_id"] for line in bad] == ["line-3"]
    assert bad[0]["response"]["status_code"] == 400
    assert batch.id in [one.id for one in client.batches.list()]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def wait_for_batch(client: OpenAI, batch_id: str) -> Any:
    while True:
        batch = client.batches.retrieve(batch_id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch


def test_a_bad_field_is_a_bad_request_with_its_name(client: OpenAI, live_server: LiveServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, live_server.model, temperature=-1)
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, live_server.model, extra_body={"chat_template": "{{ messages }}"})
    assert caught.value.param == "chat_template"
    ask(client, live_server.model, extra_body={"no_such_field": 1})


def test_a_prompt_that_never_fits_is_a_bad_request_with_a_code(client: OpenAI, live_server: LiveServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=live_server.model, prompt=[1] * 200_000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"


def test_a_wrong_model_is_not_found(client: OpenAI, live_server: LiveServer) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, "no-such-model")
    assert caught.value.code == "model_not_found"


def test_a_client_that_gives_up_raises_its_timeout_and_the_server_goes_on(
    client: OpenAI, live_server: LiveServer
) -> None:
    with pytest.raises(openai.APITimeoutError):
        ask(client.with_options(timeout=0.05), live_server.model, max_tokens=2000, extra_body={"ignore_eos": True})
    assert ask(client, live_server.model).choices[0].message.content


def test_closing_a_stream_frees_its_request(client: OpenAI, live_server: LiveServer) -> None:
    stream = ask(client, live_server.model, max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    # the request would run for minutes; that it is gone shows that the disconnect ended it
    for _ in range(3000):
        if not live_server.get("/stats")["running"]:
            break
        time.sleep(0.01)
    assert not live_server.get("/stats")["running"]


def test_a_raw_answer_carries_its_request_id(client: OpenAI, live_server: LiveServer) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=live_server.model, messages=QUESTION, temperature=0, max_tokens=1
    )
    assert raw.headers["x-request-id"]
    assert raw.parse().choices
