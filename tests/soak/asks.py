"""What clients ask: one right answer each, through every API, so that an answer under fire can be compared."""

import base64
import itertools
import json
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
_TOPICS = ("the sea", "old bridges", "bread", "the number seven", "a lost key")
_RULES = (
    "You answer questions of visitors in a small museum about the history of printing. Be short and kind. "
    "The first room shows papyrus, parchment and paper; the second room shows how a quire of sheets is folded, "
    "nested and sewn; the third room has a wooden press, its type cases and the ink balls of the workshop. "
)
"""A prefix that many prompts share."""
_CARD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "year": {"type": "integer", "minimum": 1000, "maximum": 2000},
        "kind": {"enum": ["press", "paper", "ink"]},
    },
    "required": ["name", "year", "kind"],
    "additionalProperties": False,
}
_TOOL = {"type": "function", "function": {"name": "look_up", "description": "Find an exhibit.", "parameters": _CARD}}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request and how its answer is read: `style` is the shape in which it comes."""

    name: str
    path: str
    body: Body
    style: str = "whole"
    """whole, chunks, responses, messages, lines, socket, batch, stored, upload or sound."""
    tokens: int | None = None
    """Of the answer, where the request fixes them."""
    schema: Body | None = None
    """What the answer's text, or the arguments of its call, must fit."""
    greedy: bool = True


def text_asks(model: str, tokens: int, *, adapters: tuple[str, ...] = (), is_tiny: bool = False) -> list[Ask]:
    """For a model of language. `is_tiny`: a random one with a short context, without tools."""
    asks = [*_openai(model, tokens, is_tiny), *_others(model, tokens), *_kept(model, tokens)]
    for adapter, topic in itertools.product(adapters, _TOPICS[:2]):
        asks.append(Ask(f"adapter {adapter}", COMPLETIONS, _greedy(adapter, tokens) | {"prompt": f"About {topic}:"}))
        chat = _greedy(adapter, tokens) | {"messages": _said(topic), "stream": True, "stream_options": _USAGE}
        asks.append(Ask(f"adapter {adapter}, streamed", CHAT, chat, "chunks", tokens))
    return asks


_USAGE = {"include_usage": True}


def _greedy(model: str, tokens: int) -> Body:
    return {"model": model, "temperature": 0, "max_tokens": tokens, "ignore_eos": True}


def _said(topic: str, rules: str | None = None) -> list[Body]:
    asked = {"role": "user", "content": f"Tell me about {topic}."}
    return [asked] if rules is None else [{"role": "system", "content": rules}, asked]


def _openai(model: str, tokens: int, is_tiny: bool) -> list[Ask]:
    greedy = _greedy(model, tokens)
    drawn = greedy | {"temperature": 0.9, "top_p": 0.95}
    streamed = {"stream": True, "stream_options": _USAGE}
    rules = _RULES[: 60 if is_tiny else None]
    asks = []
    for place, topic in enumerate(_TOPICS):
        shared = {"messages": _said(topic, rules)}
        asks.append(Ask("chat, shared prefix", CHAT, greedy | shared | streamed, "chunks", tokens))
        sampled = drawn | {"seed": place, "messages": _said(topic)} | streamed
        asks.append(Ask("chat, sampled", CHAT, sampled, "chunks", tokens, greedy=False))
        asks.append(Ask("completion", COMPLETIONS, greedy | {"prompt": f"A page about {topic}"}, tokens=tokens))
    long = _RULES[:100] if is_tiny else _RULES * 5
    card = {"type": "json_schema", "json_schema": {"name": "card", "schema": _CARD}}
    about_ink = greedy | {"messages": _said("ink")}
    free_end = greedy | {"max_tokens": 80, "ignore_eos": False}
    structured = free_end | {"messages": _said("a press")}
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 0.4, "repetition_penalty": 1.1}
    two = drawn | {"prompt": "One", "n": 2, "seed": 5}
    beams = {"model": model, "prompt": "The", "use_beam_search": True, "n": 2, "max_tokens": 4, "temperature": 0}
    logprobs = {"logprobs": True, "top_logprobs": 2}
    asks += [
        Ask("completion, long", COMPLETIONS, greedy | {"prompt": long} | streamed, "chunks", tokens),
        Ask("completion, two drawn", COMPLETIONS, two | streamed, "chunks", 2 * tokens, greedy=False),
        Ask("completion, logprobs", COMPLETIONS, greedy | {"prompt": "Ink is", "logprobs": 3}, tokens=tokens),
        Ask("completion, echo and stop", COMPLETIONS, greedy | {"prompt": "One, two", "echo": True, "stop": ["."]}),
        Ask("completion, regex", COMPLETIONS, free_end | {"prompt": "Call", "guided_regex": r"\d{3}-\d{4}"}),
        Ask("completion, choice", COMPLETIONS, free_end | {"prompt": "It is", "guided_choice": ["paper", "ink"]}),
        Ask("chat, logprobs", CHAT, about_ink | logprobs | streamed, "chunks", tokens),
        Ask("chat, penalties", CHAT, about_ink | penalties | streamed, "chunks", tokens),
        Ask("chat, bias", CHAT, about_ink | {"logit_bias": {"30": -100, "33": 4}}, tokens=tokens),
        Ask("chat, schema", CHAT, structured | {"response_format": card}, schema=_CARD),
        Ask("chat, schema, streamed", CHAT, structured | {"response_format": card} | streamed, "chunks", schema=_CARD),
        Ask("beams", COMPLETIONS, beams),
        Ask("embedding", "/v1/embeddings", {"model": model, "input": ["one text", "and another"]}),
        Ask("tokenize", "/tokenize", {"model": model, "prompt": long}),
        Ask("score", "/v1/score", {"model": model, "text_1": "ink", "text_2": ["paper", "bread"]}),
    ]
    if not is_tiny:
        tool = structured | {"tools": [_TOOL], "tool_choice": "required"}
        asks.append(Ask("chat, tool", CHAT, tool, schema=_CARD))
        asks.append(Ask("chat, tool, streamed", CHAT, tool | streamed, "chunks", schema=_CARD))
    return asks


def _others(model: str, tokens: int) -> list[Ask]:
    response = {"model": model, "temperature": 0, "max_output_tokens": tokens, "store": False}
    message = {"model": model, "temperature": 0, "max_tokens": tokens}
    told = {"stream": True, "stream_options": _USAGE}
    local = {"model": model, "options": {"temperature": 0, "num_predict": tokens}}
    asks = [
        Ask("llama.cpp", "/completion", {"prompt": "The press", "n_predict": tokens, "temperature": 0}),
        Ask("ollama text", "/api/generate", local | {"prompt": "Paper", "stream": False}),
    ]
    for topic in _TOPICS[:2]:
        said = _said(topic)
        asks += [
            Ask("response", RESPONSES, response | {"input": f"What is {topic}?"}),
            Ask("response, streamed", RESPONSES, response | {"input": topic, "stream": True}, "responses"),
            Ask("message", MESSAGES, message | {"messages": said}),
            Ask("message, streamed", MESSAGES, message | {"messages": said, "stream": True}, "messages"),
            Ask("ollama chat", "/api/chat", local | {"messages": said}, "lines"),
            Ask("socket", COMPLETIONS, _greedy(model, tokens) | told | {"prompt": f"On {topic}"}, "socket", tokens),
        ]
    return asks


def _kept(model: str, tokens: int) -> list[Ask]:
    """What lies on the server's disk for a while."""
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": COMPLETIONS,
            "body": _greedy(model, tokens // 2) | {"prompt": f"{number} sheets"},
        }
        for number in range(4)
    ]
    stored = {"model": model, "temperature": 0, "max_output_tokens": tokens, "input": "What is a quire?"}
    return [
        Ask("batch", "/v1/batches", {"lines": lines}, "batch"),
        Ask("stored response", RESPONSES, stored, "stored"),
        Ask("file", "/v1/files", {"content": json.dumps(lines)}, "upload"),
    ]


def picture_asks(model: str, tokens: int, pictures: list[bytes]) -> list[Ask]:
    """For a model that reads pictures."""
    asks = []
    for place, picture in enumerate(pictures):
        url = "data:image/png;base64," + base64.b64encode(picture).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]
        body = _greedy(model, tokens) | {"messages": [{"role": "user", "content": content}]}
        asks.append(Ask("picture", CHAT, body, tokens=tokens))
        streamed = body | {"temperature": 0.8, "seed": place, "stream": True, "stream_options": _USAGE}
        asks.append(Ask("picture, sampled", CHAT, streamed, "chunks", tokens, greedy=False))
    return asks


def sound_asks(model: str, sounds: list[bytes]) -> list[Ask]:
    """For a model that writes down what is said."""
    form = {"model": model, "temperature": "0.7", "seed": "1"}
    return [
        Ask("sound", "/v1/audio/transcriptions", {"form": form, "file": base64.b64encode(sound).decode()}, "sound")
        for sound in sounds
    ]
