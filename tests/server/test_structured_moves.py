"""Structured output whose engine dies under it: another one reads what was said, and the language is kept."""

import json
import os
import signal
from pathlib import Path

import jsonschema

from tests.server.live import running_server

SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"word": {"type": "string", "maxLength": 12}, "size": {"enum": ["small", "large"]}},
        "required": ["word", "size"],
        "additionalProperties": False,
    },
    "minItems": 6,
    "maxItems": 6,
}


def test_a_stream_goes_on_in_another_engine(tmp_path: Path) -> None:
    body = {
        "messages": [{"role": "user", "content": "Six things and how large they are."}],
        "temperature": 0.8,
        "seed": 4,
        "max_tokens": 600,
        "stream": True,
        "guided_json": SCHEMA,
    }
    with running_server(tmp_path) as server, server.client() as client:
        texts = []
        for kill_after in (None, 10):
            text, pieces = "", 0
            with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                for line in answer.iter_lines():
                    if not line.startswith("data: {"):
                        continue
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                    pieces += 1
                    if pieces == kill_after:
                        [engine] = server.engine_pids()
                        os.kill(engine, signal.SIGKILL)
            texts.append(text)
        assert [engine["restarts"] for engine in server.get("/stats")["engines"]] == [1]
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert texts[0] == texts[1]  # noise is a function of seed and place
