"""Images and video in messages: read from bodies as parts, and taken out of them before a chat template reads the rest.

A part is `{"type": "image", "media": MediaSource}` between the two; templates see `{"type": "image"}`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.media import MediaKind
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, body

LONGEST_URL = 1 << 28
"""Characters of a data URL; the body's own bound is less as a rule."""
LONGEST_FILE_ID = 128
_MEDIA = "media"
_DETAILS = ("auto", "low", "high", "original")
PART_KINDS: dict[str, MediaKind] = {"image_url": "image", "input_image": "image", "video_url": "video"}
"""OpenAI's types of parts; the second is the Responses API's."""
_URL: Schema = {"type": "string", "maxLength": LONGEST_URL, "minLength": 1}
_NESTED: Schema = {"anyOf": [_URL, body({"url": _URL, "detail": {"enum": list(_DETAILS)}}, required=("url",))]}
_INPUT_IMAGE: dict[str, Schema] = {"type": {"const": "input_image"}, "detail": {"enum": list(_DETAILS)}}
_FILE: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_FILE_ID}
PART_SCHEMAS: tuple[Schema, ...] = (
    body({"type": {"const": "image_url"}, "image_url": _NESTED}, required=("type", "image_url")),
    body({"type": {"const": "video_url"}, "video_url": _NESTED}, required=("type", "video_url")),
    body(_INPUT_IMAGE | {"image_url": _NESTED}, required=("type", "image_url")),
    body(_INPUT_IMAGE | {"file_id": _FILE}, required=("type", "file_id")),
)


@dataclass(frozen=True, slots=True)
class MediaSource:
    """Where a piece of media is: at a URL, or among the uploaded files."""

    kind: MediaKind
    field: str
    """What errors call it."""
    url: str | None = None
    file_id: str | None = None


def is_media(given: object) -> bool:
    """Whether a part of OpenAI's kinds is media."""
    return isinstance(given, Mapping) and given.get("type") in PART_KINDS


def read_part(inside: Fields, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A part of type image_url, input_image or video_url."""
    kind = PART_KINDS[given["type"]]
    name = "video_url" if kind == "video" else "image_url"
    part = inside.inside(where, given, ("type", name, "file_id", "detail", "cache_control"))
    nested = part.get(name)
    if isinstance(nested, Mapping):
        within = part.inside(f"{where}.{name}", nested, ("url", "detail"))
        url = within.text("url", longest=LONGEST_URL)
        within.hint("detail", *_DETAILS)
    else:
        url = part.text(name, longest=LONGEST_URL)
    part.hint("detail", *_DETAILS)
    file_id = part.text("file_id", longest=LONGEST_FILE_ID)
    if (url is None) == (file_id is None):
        raise refuse(
            where, "without a URL" if url is None else "with both", f"given a {name} or a file_id, and one of them"
        )
    return media_part(MediaSource(kind, where, url, file_id))


def media_part(source: MediaSource) -> dict[str, Any]:
    return {"type": source.kind, _MEDIA: source}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def split_media(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[MediaSource]]:
    """Messages as templates read them, and their media in the order in which they come."""
    sources: list[MediaSource] = []
    plain: list[dict[str, Any]] = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, list):
            plain.append(dict(message))
            continue
        parts: list[Any] = []
        for part in content:
            source = part.get(_MEDIA) if isinstance(part, Mapping) else None
            if isinstance(source, MediaSource):
                sources.append(source)
                parts.append({"type": source.kind})
            else:
                parts.append(part)
        plain.append({**message, "content": parts})
    return plain, sources


def with_marks(messages: Sequence[Mapping[str, Any]], marks: Mapping[MediaKind, str]) -> list[dict[str, Any]]:
    """The same with every content as text, and a mark of each kind where media stood: for templates that know none."""

    def said(content: Any) -> Any:
        if not isinstance(content, list):
            return content
        return "".join(marks[part["type"]] if part["type"] in marks else str(part.get("text", "")) for part in content)

    return [{**message, "content": said(message.get("content"))} for message in messages]


def refuse_media(messages: Sequence[Mapping[str, Any]], why: str) -> None:
    """Raises an InvalidRequest where there is media."""
    sources = split_media(messages)[1]
    if sources:
        raise InvalidRequest(f"{sources[0].field} is {_AN[sources[0].kind]}; {why}", field="messages")


_AN = {"image": "an image", "video": "a video"}
