"""Structured output over HTTP from the real default model, whole and in pieces, by every name clients have for it."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import httpx
import jsonschema
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.server.live import LiveServer

ASK: list[Any] = [{"role": "user", "content": "Tell me of a person who lives with two pets."}]
DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
ARITHMETIC = (
    '?start: sum\nsum: product (("+" | "-") product)~0..4\nproduct: NUMBER ("*" NUMBER)~0..2\nNUMBER: /[0-9]{1,3}/'
)


class Pet(BaseModel):
    name: str
    kind: Literal["cat", "dog", "fish"]


class Person(BaseModel):
    name: str
    age: int
    pets: list[Pet]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "size": {"enum": ["small", "large"]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def http(live_server: LiveServer) -> Iterator[httpx.Client]:
    with live_server.client() as client:
        yield client


@pytest.fixture(scope="module")
def openai(live_server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def chat(http: httpx.Client, **fields: Any) -> Any:
    body = {"messages": ASK, "temperature": 0, "max_tokens": 200, **fields}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    assert choice["finish_reason"] == "stop"
    return choice["message"]["content"]


def streamed(http: httpx.Client, **fields: Any) -> str:
    body = {"messages": ASK, "temperature": 0, "max_tokens": 200, "stream": True, **fields}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines)


def refused(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = http.post("/v1/chat/completions", json={"messages": ASK, "max_tokens": 5, **fields})
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


def test_openais_client_parses_a_nested_model(openai: OpenAI, live_server: LiveServer) -> None:
    answer = openai.chat.completions.parse(
        model=live_server.model, messages=ASK, response_format=Person, temperature=0.0, max_tokens=300
    )
    person = answer.choices[0].message.parsed
    assert isinstance(person, Person)
    assert person.name


def test_openais_client_parses_a_stream(openai: OpenAI, live_server: LiveServer) -> None:
    with openai.chat.completions.stream(
        model=live_server.model, messages=ASK, response_format=Person, temperature=0.0, max_tokens=300
    ) as stream:
        for _ in stream:
            pass
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, Person)


def test_openais_client_parses_a_response(openai: OpenAI, live_server: LiveServer) -> None:
    answer = openai.responses.parse(
        model=live_server.model, input="A person with pets.", text_format=Person, temperature=0.0, max_output_tokens=300
    )
    assert isinstance(answer.output_parsed, Person)
    assert answer.text is not None
    assert answer.text.format is not None
    assert answer.text.format.type == "json_schema"


NAMED = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}
BOUND: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"response_format": NAMED}, SCHEMA),
    ({"structured_outputs": {"json": SCHEMA}}, SCHEMA),
    ({"guided_json": SCHEMA}, SCHEMA),
    ({"guided_json": json.dumps(SCHEMA)}, SCHEMA),
    ({"guided_json": {"enum": ["a", 5, None]}}, {"enum": ["a", 5, None]}),
]


@pytest.mark.parametrize(("fields", "schema"), BOUND, ids=lambda value: str(next(iter(value))))
def test_schemas_by_every_name(http: httpx.Client, fields: dict[str, Any], schema: dict[str, Any]) -> None:
    whole = chat(http, **fields)
    jsonschema.validate(json.loads(whole), schema)
    assert streamed(http, **fields) == whole


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"guided_regex": DATE}, DATE),
        ({"structured_outputs": {"regex": DATE}}, DATE),
        ({"guided_choice": ["yes", "no", "maybe so"]}, "yes|no|maybe so"),
        ({"structured_outputs": {"choice": ["ü", "ö"]}}, "ü|ö"),
        ({"guided_grammar": ARITHMETIC}, r"\d+([-+*]\d+)*"),
        ({"structured_outputs": {"grammar": 'root ::= "a" [0-9] "z"', "disable_any_whitespace": True}}, r"a\dz"),
    ],
    ids=str,
)
def test_other_languages(http: httpx.Client, fields: dict[str, Any], pattern: str) -> None:
    whole = chat(http, **fields, temperature=0.7, seed=3)
    assert re.fullmatch(pattern, whole)
    assert streamed(http, **fields, temperature=0.7, seed=3) == whole


def test_any_object(http: httpx.Client) -> None:
    asked = {
        "response_format": {"type": "json_object"},
        "messages": [{"role": "user", "content": "JSON of a cat, short"}],
    }
    answer = http.post("/v1/chat/completions", json={"temperature": 0, "max_tokens": 200, **asked}).json()["choices"][0]
    assert answer["message"]["content"].startswith("{")
    if answer["finish_reason"] == "stop":
        assert isinstance(json.loads(answer["message"]["content"]), dict)


def test_a_structural_tag(http: httpx.Client) -> None:
    tag = {
        "type": "structural_tag",
        "structures": [{"begin": "<call>", "schema": {"enum": [7]}, "end": "</call>"}],
        "triggers": ["<call>"],
    }
    asked = {"messages": [{"role": "user", "content": "Repeat exactly: <call>8</call>"}], "max_tokens": 30}
    text = http.post("/v1/chat/completions", json=asked | {"response_format": tag}).json()["choices"][0]["message"]
    assert set(re.findall(r"<call>(.*?)</call>", text["content"])) <= {"7"}


def test_a_structural_tag_of_nested_formats(http: httpx.Client) -> None:
    content = {"type": "json_schema", "json_schema": {"enum": [7]}}
    tag = {"type": "tag", "begin": "<call>", "content": content, "end": "</call>"}
    flags = {"separator": ",", "at_least_one": True, "stop_after_first": True}
    calls = {"type": "tags_with_separator", "tags": [tag], **flags}
    form = {"type": "sequence", "elements": [{"type": "const_string", "value": "So: "}, calls]}
    text = chat(http, response_format={"type": "structural_tag", "format": form})
    assert text == "So: <call>7</call>"


def test_settings_that_forbid_what_a_grammar_needs_are_the_clients_fault(http: httpx.Client) -> None:
    body = {"prompt": "When?", "max_tokens": 5, "guided_regex": "[0-9]+", "allowed_token_ids": [1]}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert "allowed_token_ids" in answer.json()["error"]["message"]


def test_completions_too(http: httpx.Client) -> None:
    body = {"prompt": ["When did it end?", "And begin?"], "max_tokens": 40, "n": 2, "guided_regex": DATE}
    choices = http.post("/v1/completions", json=body).raise_for_status().json()["choices"]
    assert len(choices) == 4
    assert all(re.fullmatch(DATE, choice["text"]) for choice in choices)


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"guided_json": {"properties": {"a": {"not": {}}}}}, "guided_json", "/properties/a/not"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema"),
        ({"response_format": {"type": "yaml"}}, "response_format", "one of"),
        ({"response_format": {"type": "text", "json_schema": {}}}, "response_format", "left out"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "one language"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "leave all but one out"),
        ({"guided_regex": "("}, "guided_regex", "unclosed group"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs", "unclosed group"),
        (
            {"response_format": {"type": "structural_tag", "format": {"type": "tag"}}},
            "response_format",
            "/format/begin",
        ),
        ({"guided_grammar": "start: nothing"}, "guided_grammar", "unknown name"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "not supported"),
        ({"guided_json": 5}, "guided_json", "a JSON schema"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused(http: httpx.Client, fields: dict[str, Any], param: str, said: str) -> None:
    error = refused(http, **fields)
    assert error["param"] == param
    assert said in error["message"]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


HOSTILE: dict[str, dict[str, Any]] = {
    "deep": {"guided_json": nested(200)},
    "deeper": {"guided_json": '{"items":' * 50_000 + "{}" + "}" * 50_000},
    "many patterns": {"guided_json": {"properties": {f"p{i}": {"pattern": "(a|b|c)*abb(a|b)*"} for i in range(9000)}}},
    "a megabyte of grammar": {"guided_grammar": "\n".join(f"r{i} ::= r{i + 1}" for i in range(50_000))},
    "rules in a ring": {
        "guided_grammar": "start: r0\n" + "\n".join(f'r{i}: "a" r{(i + 1) % 9000} | "b"' for i in range(9000))
    },
    "an intersection": {"guided_grammar": "start: A\nA: /(.*x){20}.{5,200}/ & /(.*y){20}.{7,300}/ & ~/(.*z){20}/"},
    "no text": {"guided_grammar": "start: start"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_are_refused(http: httpx.Client, name: str) -> None:
    assert refused(http, **HOSTILE[name])["type"] == "invalid_request_error"


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+c", "(.*a){12}", "((a{1,20}){1,20}){1,20}"])
def test_patterns_that_other_engines_choke_on_are_only_patterns(http: httpx.Client, pattern: str) -> None:
    body = {"messages": ASK, "max_tokens": 12, "guided_regex": pattern, "temperature": 0}
    assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_bystanders_are_unharmed(http: httpx.Client, live_server: LiveServer) -> None:
    """While hostile grammars come in, others are answered, and the engine is the one it was."""
    engines = live_server.engine_pids()
    with ThreadPoolExecutor(8) as pool:
        bad = [
            pool.submit(
                refused, http, guided_json={"properties": {f"{n}p{i}": {"pattern": "(a|b)*abb"} for i in range(9000)}}
            )
            for n in range(3)
        ]
        good = [pool.submit(chat, http, guided_choice=["yes", "no"]) for _ in range(3)]
        free = [
            pool.submit(http.post, "/v1/chat/completions", json={"messages": ASK, "max_tokens": 5}) for _ in range(3)
        ]
        assert all(task.result().status_code == 200 for task in free)
        assert {task.result() for task in good} <= {"yes", "no"}
        assert all(task.result() for task in bad)
    assert live_server.engine_pids() == engines
