"""Conversations with media, offline: parts of messages become marks in a prompt, and the files that these stand for."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.core.errors import InvalidRequest
from quire.multimodal.fetch import MediaFetcher
from quire.multimodal.offline import files_of
from quire.multimodal.reader import MediaFile, PromptReader
from quire.protocol.media_parts import MediaSource, is_media, media_part, read_part, split_media, with_marks
from quire.protocol.openai.fields import Fields
from quire.text.tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
_PILLOW = "image_pil"
"""vLLM's own type of part: an image of Pillow's under the same name."""


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A conversation as the model reads it."""

    text: str
    tokens: list[int]
    files: list[MediaFile]
    """What the marks in it stand for."""


def with_sources(messages: Messages) -> list[dict[str, Any]]:
    """Messages whose parts of media are read, as bodies' are; all else stays as it is."""
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def render_chat(
    messages: Messages,
    render: Callable[[Messages], str],
    tokenizer: Tokenizer,
    media: Callable[[], PromptReader],
    fetcher: MediaFetcher,
    *,
    add_special_tokens: bool | None = None,
) -> RenderedChat:
    """`messages` as `with_sources` gives them. Raises an InvalidRequest that names the part.

    `add_special_tokens`, where it is not said: only before texts beside media, and of models that have it so.
    """
    plain, sources = split_media(messages)
    if not sources:
        text = render(plain)
        return RenderedChat(text, tokenizer.encode(text, add_special_tokens=bool(add_special_tokens)), [])
    reader = media()
    kinds = [source.kind for source in sources]
    reader.check_counts(kinds)
    special = reader.cuts_texts if add_special_tokens is None else add_special_tokens

    def encode(text: str) -> list[int]:
        return reader.joined(tokenizer.encode_batch(reader.texts(text), add_special_tokens=special))

    try:
        text = render(plain)
        tokens = encode(text)
        shows_media = reader.marked(tokens) == kinds
    except InvalidRequest:  # of templates that put contents together as texts, which parts are not
        shows_media = False
    if not shows_media:  # or it reads texts alone
        text = render(with_marks(plain, reader.marks))
        tokens = encode(text)
    return RenderedChat(text, tokens, [_file(source, fetcher) for source in sources])


def _file(source: MediaSource, fetcher: MediaFetcher) -> MediaFile:
    if source.url is None:
        raise InvalidRequest(
            f"{source.field} names the file {source.file_id!r}, and files are uploaded to servers; give a URL",
            field=source.field,
        )
    return source.kind, fetcher.load(source.url, source.field), source.field


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return dict(message)
    parts = [_part(part, f"{where}.content[{place}]") for place, part in enumerate(content)]
    return {**message, "content": parts}


def _part(part: Any, where: str) -> Any:
    if isinstance(part, Mapping) and part.get("type") == _PILLOW:
        [(kind, data, _)] = files_of({"image": part.get(_PILLOW)})
        return media_part(MediaSource(kind, where, f"data:image/png;base64,{base64.b64encode(data).decode()}"))
    return read_part(Fields({}, known=()), part, where) if is_media(part) else part
