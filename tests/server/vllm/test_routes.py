"""vLLM's own routes and fields on a real server."""

import json
import math
from typing import Any

import httpx
import pytest

from quire import LLM, BeamSearchParams
from tests.server.live import LiveServer

HI = [{"role": "user", "content": "Say hi."}]
PROMPT = "The capital of France is"


@pytest.fixture
def client(live_server: LiveServer) -> Any:
    with live_server.client() as found:
        yield found


def ask(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_conversations_answered_together_are_answered_as_if_alone(client: httpx.Client) -> None:
    other = [{"role": "user", "content": "Count to three."}]
    asked = {"max_tokens": 5, "temperature": 0}
    body = ask(client, "/v1/chat/completions/batch", messages=[HI, other], return_token_ids=True, **asked)
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    for choice, messages in zip(body["choices"], (HI, other), strict=True):
        alone = ask(client, "/v1/chat/completions", messages=messages, return_token_ids=True, **asked)
        assert choice["message"] == alone["choices"][0]["message"]
        assert choice["prompt_token_ids"] == alone["prompt_token_ids"]
    assert body["usage"]["completion_tokens"] == 10


def test_tokens_in_and_out(client: httpx.Client) -> None:
    tokens = ask(client, "/tokenize", prompt=PROMPT)["tokens"]
    sampling = {"max_tokens": 4, "temperature": 0, "logprobs": 2}
    whole = ask(client, "/inference/v1/generate", token_ids=tokens, sampling_params=sampling)
    [choice] = whole["choices"]
    assert (len(choice["token_ids"]), choice["finish_reason"]) == (4, "length")
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [
        f"token_id:{token}" for token in choice["token_ids"]
    ]
    body = {"token_ids": tokens, "sampling_params": sampling, "stream": True, "stream_options": {"include_usage": True}}
    with client.stream("POST", "/inference/v1/generate", json=body) as answer:
        *chunks, usage, done = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    said = [token for chunk in chunks for token in json.loads(chunk)["choices"][0]["token_ids"]]
    assert (said, done) == (choice["token_ids"], "[DONE]")
    assert json.loads(usage)["usage"] == whole["usage"]


def test_scores_are_the_models_own_probabilities(client: httpx.Client) -> None:
    paris, the = 7042, 260
    items = [" is", " of"]
    asked = {"query": "The capital of France", "items": items, "label_token_ids": [paris, the]}
    whole = ask(client, "/generative_scoring", apply_softmax=False, **asked)
    among = ask(client, "/generative_scoring", **asked)
    for index, item in enumerate(items):
        body = {"logprobs": 0, "logprob_token_ids": [paris, the], "max_tokens": 1, "return_tokens_as_token_ids": True}
        found = ask(client, "/v1/completions", prompt="The capital of France" + item, **body)
        named = found["choices"][0]["logprobs"]["top_logprobs"][0]
        first, second = (math.exp(named[f"token_id:{token}"]) for token in (paris, the))
        assert whole["data"][index]["score"] == pytest.approx(first, rel=1e-3)
        assert among["data"][index]["score"] == pytest.approx(first / (first + second), rel=1e-3)


def test_named_tokens_have_the_logprobs_that_the_most_likely_ones_have(client: httpx.Client) -> None:
    asked = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0, "return_tokens_as_token_ids": True}
    likely = ask(client, "/v1/completions", logprobs=5, **asked)["choices"][0]["logprobs"]["top_logprobs"][0]
    ids = [int(name.removeprefix("token_id:")) for name in likely][::-1]
    named = ask(client, "/v1/completions", logprobs=5, logprob_token_ids=[*ids, 5000], **asked)
    found = named["choices"][0]["logprobs"]["top_logprobs"][0]
    assert set(found) == {*likely, "token_id:5000"}
    for name, value in likely.items():
        assert found[name] == pytest.approx(value, abs=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"messages": HI, "max_tokens": 2}, "chat.completion"),
        ({"prompt": PROMPT, "max_tokens": 2}, "text_completion"),
        ({"input": "a"}, "list"),
        ({"text_1": "a", "text_2": "b"}, "list"),
    ],
)
def test_invocations_go_where_they_belong(client: httpx.Client, body: dict[str, Any], kind: str) -> None:
    assert ask(client, "/invocations", **body)["object"] == kind


def test_invocations_of_nothing_are_refused(client: httpx.Client) -> None:
    assert "results" in ask(client, "/invocations", query="a", documents=["b"])
    answer = client.post("/invocations", json={"something": 1})
    assert answer.status_code == 400
    assert "messages" in answer.json()["error"]["message"]


def test_pings_load_and_the_tokenizer(client: httpx.Client) -> None:
    assert client.get("/ping").status_code == client.post("/ping").status_code == 200
    assert client.get("/load").json() == {"server_load": 0}
    found = client.get("/tokenizer_info").json()
    assert (found["eos_token"], found["model_max_length"]) == ("<|im_end|>", 8192)
    assert found["added_tokens_decoder"]["2"]["content"] == "<|im_end|>"


@pytest.mark.parametrize("form", ["TEXT", "JSON"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_load_stands_in_a_header_for_whoever_asks(client: httpx.Client, form: str, stream: bool) -> None:
    body = {"prompt": PROMPT, "max_tokens": 1, "stream": stream}
    answer = client.post("/v1/completions", json=body, headers={"endpoint-load-metrics-format": form})
    told = answer.headers["endpoint-load-metrics"]
    assert told.startswith(form + " ")
    assert "kv_cache_usage_perc" in told
    assert "endpoint-load-metrics" not in client.post("/v1/completions", json=body).headers


def test_a_response_is_counted_before_it_is_asked_for(client: httpx.Client) -> None:
    counted = ask(client, "/v1/responses/input_tokens", input="Say hi.")
    created = ask(client, "/v1/responses", input="Say hi.", max_output_tokens=1)
    assert counted == {"object": "response.input_tokens", "input_tokens": created["usage"]["input_tokens"]}
    items = client.get(f"/v1/responses/{created['id']}/input_items").json()["data"]
    assert items[0]["content"][0]["text"] == "Say hi."


def test_an_echo_of_a_message_that_is_gone_on_with(client: httpx.Client) -> None:
    messages = [*HI, {"role": "assistant", "content": "Hello, I am"}]
    asked = {"messages": messages, "continue_final_message": True, "echo": True, "max_tokens": 3, "temperature": 0}
    said = ask(client, "/v1/chat/completions", **asked)["choices"][0]["message"]["content"]
    assert said.startswith("Hello, I am ")
    with client.stream("POST", "/v1/chat/completions", json={**asked, "stream": True}) as answer:
        data = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
    assert "".join(json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in data) == said


def test_an_echo_of_tokens_shows_special_ones(client: httpx.Client) -> None:
    asked = {"prompt": [1, 7042], "echo": True, "max_tokens": 1, "logprobs": 0}
    choice = ask(client, "/v1/completions", **asked)["choices"][0]
    assert choice["text"].startswith("<|im_start|> Paris")
    assert choice["logprobs"]["text_offset"][:3] == [0, 12, 18]


def test_prompts_are_cut_at_either_side(client: httpx.Client) -> None:
    asked = {"prompt": [10, 11, 12, 13], "truncate_prompt_tokens": 2, "max_tokens": 1, "return_token_ids": True}
    for side, kept in (("left", [12, 13]), ("right", [10, 11])):
        found = ask(client, "/v1/completions", truncation_side=side, **asked)
        assert found["choices"][0]["prompt_token_ids"] == kept


def test_beams_are_those_of_the_offline_search(client: httpx.Client) -> None:
    body = {"prompt": [PROMPT, "Once upon a"], "n": 3, "use_beam_search": True, "max_tokens": 6, "logprobs": 0}
    found = ask(client, "/v1/completions", return_token_ids=True, **body)
    served = [choice["token_ids"] for choice in found["choices"]]
    llm = LLM("smollm2")
    searches = llm.beam_search(body["prompt"], BeamSearchParams(beam_width=3, max_tokens=6))
    prompts = [len(llm.get_tokenizer().encode(prompt)) for prompt in body["prompt"]]
    llm.close()
    searched = [
        sequence.tokens[length:]
        for length, search in zip(prompts, searches, strict=True)
        for sequence in search.sequences
    ]
    assert served == searched
    scores = [sum(choice["logprobs"]["token_logprobs"]) for choice in found["choices"][:3]]
    assert scores == sorted(scores, reverse=True)
    assert found["usage"]["completion_tokens"] == sum(map(len, served))


def test_beams_are_streamed_when_they_are_found(client: httpx.Client) -> None:
    body = {"prompt": PROMPT, "n": 2, "use_beam_search": True, "max_tokens": 4}
    whole = [choice["text"] for choice in ask(client, "/v1/completions", **body)["choices"]]
    texts = ["", ""]
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
        for line in answer.iter_lines():
            for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else []:
                texts[choice["index"]] += choice["text"]
    assert texts == whole


def test_a_search_that_cannot_be_done_is_refused_before_it_streams(client: httpx.Client) -> None:
    for body, field in (({"n": 100}, "n"), ({"n": 2, "prompt": [10**9]}, "prompt")):
        asked = {"prompt": PROMPT, "use_beam_search": True, "stream": True, **body}
        answer = client.post("/v1/completions", json=asked)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
