"""Bodies that no client should send: each must be refused with a status of 400 to 499 and a reason, and harm nobody."""

import json

_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def hostile(model: str) -> dict[str, tuple[str, bytes]]:
    """A path and a body by its name."""
    no_picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    said = [{"role": "user", "content": "Hi"}]
    prompts: dict[str, dict[str, object]] = {
        "negative": {"prompt": "a", "max_tokens": -1},
        "too long": {"prompt": "word " * 20_000},
        "bad grammar": {"prompt": "a", "guided_regex": "("},
        "not a number": {"prompt": "a", "temperature": float("nan")},
    }
    chats: dict[str, dict[str, object]] = {
        "wrong types": {"messages": "Hi", "n": "two"},
        "unknown model": {"model": "no-such", "messages": said},
        "no picture": {"messages": [{"role": "user", "content": [no_picture]}]},
    }
    return {
        "no JSON": (_CHAT, b'{"messages": ['),
        "no UTF-8": (_COMPLETIONS, b'{"prompt": "\xff\xfe"}'),
        "deep": (_CHAT, b'{"messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        "a list": ("/v1/responses", b"[1, 2, 3]"),
        "empty message": ("/v1/messages", _bytes(model, {"max_tokens": 4, "messages": []})),
        **{name: (_COMPLETIONS, _bytes(model, body)) for name, body in prompts.items()},
        **{name: (_CHAT, _bytes(model, body)) for name, body in chats.items()},
    }


def _bytes(model: str, body: dict[str, object]) -> bytes:
    return json.dumps({"model": model} | body).encode()
