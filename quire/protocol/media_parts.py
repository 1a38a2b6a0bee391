"""Media in messages: read from bodies as parts, and taken out of them before a chat template reads the rest.

A part is `{"type": "image", "media": MediaSource}` between the two; templates see `{"type": "image"}`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.core.media import MediaKind
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, body

LONGEST_URL = 1 << 28
"""Characters of a data URL; the body's own bound is less as a rule."""
LONGEST_FILE_ID = 128
_MEDIA = "media"
_DETAILS = ("auto", "low", "high", "original")
PART_KINDS: dict[str, MediaKind] = {
    "image_url": "image",
    "input_image": "image",
    "video_url": "video",
    "audio_url": "audio",
    "input_audio": "audio",
}
"""OpenAI's types of parts, and vLLM's; the second is the Responses API's."""
AUDIO_FORMATS = ("wav", "mp3", "flac", "ogg", "opus", "m4a", "aac", "webm")
"""What `input_audio` may call itself; what it is, its bytes tell."""
_URL: Schema = {"type": "string", "maxLength": LONGEST_URL, "minLength": 1}
_NESTED: Schema = {"anyOf": [_URL, body({"url": _URL, "detail": {"enum": list(_DETAILS)}}, required=("url",))]}
_INPUT_AUDIO: Schema = body({"data": _URL, "format": {"enum": list(AUDIO_FORMATS)}}, required=("data", "format"))
_INPUT_IMAGE: dict[str, Schema] = {"type": {"const": "input_image"}, "detail": {"enum": list(_DETAILS)}}
_FILE: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_FILE_ID}
PART_SCHEMAS: tuple[Schema, ...] = (
    body({"type": {"const": "image_url"}, "image_url": _NESTED}, required=("type", "image_url")),
    body({"type": {"const": "video_url"}, "video_url": _NESTED}, required=("type", "video_url")),
    body({"type": {"const": "audio_url"}, "audio_url": _NESTED}, required=("type", "audio_url")),
    body({"type": {"const": "input_audio"}, "input_audio": _INPUT_AUDIO}, required=("type", "input_audio")),
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
    kind = given.get("type") if isinstance(given, Mapping) else None
    return isinstance(kind, str) and kind in PART_KINDS  # what is no text may have no hash


def read_part(inside: Fields, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A part of a type in PART_KINDS."""
    kind = PART_KINDS[given["type"]]
    if given["type"] == "input_audio":
        return media_part(MediaSource(kind, where, _inline_audio(inside, given, where)))
    name = f"{kind}_url"
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


def _inline_audio(inside: Fields, given: Mapping[str, Any], where: str) -> str:
    """OpenAI's sound in a body, as the data URL that it stands for."""
    part = inside.inside(where, given, ("type", "input_audio", "cache_control"))
    nested = part.get("input_audio")
    if not isinstance(nested, Mapping):
        raise refuse(f"{where}.input_audio", nested, "an object with data and format")
    within = part.inside(f"{where}.input_audio", nested, ("data", "format"))
    data, form = within.text("data", longest=LONGEST_URL), within.text("format")
    if not data:
        raise refuse(f"{where}.input_audio.data", None, "the bytes of a file in base64")
    if form not in AUDIO_FORMATS:
        raise refuse(f"{where}.input_audio.format", form, f"one of {', '.join(AUDIO_FORMATS)}")
    return inline_audio_url(data, form)


def inline_audio_url(data: str, form: str) -> str:
    return f"data:audio/{form};base64,{data}"


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
