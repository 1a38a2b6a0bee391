"""Bodies of /tokenize and /detokenize: vLLM's, and llama.cpp's, which calls the text `content`."""

from dataclasses import dataclass

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.protocol.openai.body import CHAT_FIELDS, ChatBody, read_chat_body
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import LONGEST_MODEL, MODEL
from quire.protocol.openai.prompts import MOST_TOKENS, TEXT, read_texts, read_tokens
from quire.protocol.openai.schema import TOKEN_ID, Schema, flag, only

_OF_CHATS = (
    *("model", "messages", "add_generation_prompt", "continue_final_message", "add_special_tokens"),
    *("chat_template_kwargs", "enable_thinking", "documents", "reasoning_effort", "tools", "tool_choice"),
    *("functions", "function_call", "parallel_tool_calls"),
)
_STRINGS: dict[str, Schema] = {"return_token_strs": flag(description="Also how the vocabulary spells each token.")}
TOKENIZE_TEXT_FIELDS: dict[str, Schema] = {"model": MODEL, "prompt": TEXT, "add_special_tokens": flag(), **_STRINGS}
TOKENIZE_CHAT_FIELDS: dict[str, Schema] = {name: CHAT_FIELDS[name] for name in _OF_CHATS} | _STRINGS
"""Every field of a body with messages; they mean what they mean in a chat."""
TOKENIZE_CONTENT_FIELDS: dict[str, Schema] = {
    "content": TEXT,
    "add_special": flag(),
    "parse_special": only(True),
    "with_pieces": flag(description="Each token with its text."),
}
"""Every field of a body of llama.cpp's."""
DETOKENIZE_FIELDS: dict[str, Schema] = {
    "model": MODEL,
    "tokens": {"type": "array", "items": TOKEN_ID, "maxItems": MOST_TOKENS},
}


@dataclass(frozen=True, slots=True)
class TokenizeBody:
    """A body of /tokenize: a text or a conversation."""

    model: str | None
    prompt: str | ChatBody
    add_special_tokens: bool
    spelled: bool
    """How the vocabulary spells each token is wanted too."""


@dataclass(frozen=True, slots=True)
class ContentBody:
    """A body of /tokenize as llama.cpp's clients send it."""

    content: str
    add_special_tokens: bool
    with_pieces: bool


@dataclass(frozen=True, slots=True)
class DetokenizeBody:
    """A body of /detokenize."""

    model: str | None
    tokens: list[int]


def read_tokenize_body(values: object, ignored: Ignored | None = None) -> TokenizeBody | ContentBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given, ignored = dict(object_of(values)), ignored or Ignored()
    if given.get("content") is not None:
        return _read_content(given, ignored)
    if given.get("messages") is None:
        body = Fields(given, known=TOKENIZE_TEXT_FIELDS, ignored=ignored)
        if "prompt" not in body:
            raise refuse("prompt", None, "text, unless messages are given")
        if not isinstance(body.get("prompt"), str):
            raise refuse("prompt", body.get("prompt"), "text")
        (prompt,) = read_texts("prompt", body.get("prompt"))
        special, spelled = body.flag("add_special_tokens", True), body.flag("return_token_strs")
        return TokenizeBody(body.text("model", longest=LONGEST_MODEL), prompt, special, spelled)
    if given.get("prompt") is not None:
        raise InvalidRequest("prompt and messages are both given; leave one out", field="prompt")
    spelled = Fields(given, known=(*TOKENIZE_CHAT_FIELDS, "prompt"), ignored=ignored).flag("return_token_strs")
    chat = read_chat_body({name: value for name, value in given.items() if name in _OF_CHATS}, ignored)
    return TokenizeBody(chat.model, chat, bool(chat.add_special_tokens), spelled)


def _read_content(given: dict[str, object], ignored: Ignored) -> ContentBody:
    body = Fields(given, known=TOKENIZE_CONTENT_FIELDS, ignored=ignored)
    body.only("parse_special", True)
    if not isinstance(body.get("content"), str):
        raise refuse("content", body.get("content"), "text")
    (content,) = read_texts("content", body.get("content"))
    return ContentBody(content, body.flag("add_special"), body.flag("with_pieces"))


def read_detokenize_body(values: object, ignored: Ignored | None = None) -> DetokenizeBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(object_of(values), known=DETOKENIZE_FIELDS, ignored=ignored or Ignored())
    return DetokenizeBody(body.text("model", longest=LONGEST_MODEL), read_tokens("tokens", body.get("tokens")))
