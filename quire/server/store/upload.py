"""Upload: a multipart body as its fields and one file, which waits on disk until it is stored."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from quire.core.errors import InvalidRequest
from quire.protocol.openai.fields import refuse
from quire.server.errors import BodyTooLarge, UnsupportedMediaType

_CHUNK = 1 << 20
_MOST_FIELDS = 16
_LONGEST_FIELD = 4096
_LONGEST_NAME = 255
_LIST = "[]"
"""Ends the name of a field that may come several times; its values are put together with commas."""
_OVERHEAD = 64 << 10
"""Bytes of a body that may be boundaries, headers and fields."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What a form held. Whoever reads it closes it."""

    fields: dict[str, str]
    filename: str
    file: UploadFile

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.file.read(_CHUNK):
            yield chunk

    async def close(self) -> None:
        await self.file.close()


async def read_upload(request: Request, most_bytes: int) -> Upload:
    """Raises a BodyTooLarge as soon as more than `most_bytes` have come."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise UnsupportedMediaType(f"the content type is {kind[:80]!r}; a file is sent as multipart/form-data")
    parser = MultiPartParser(
        request.headers,
        _bounded(request, most_bytes),
        max_files=1,
        max_fields=_MOST_FIELDS,
        max_part_size=_LONGEST_FIELD,
    )
    try:
        items = (await parser.parse()).multi_items()
    except ClientDisconnect:
        raise InvalidRequest("the body broke off before its end") from None
    except MultiPartException as error:
        raise InvalidRequest(f"the body is not a form that can be read: {error.message}") from None
    except ValueError:  # names of character sets go from the header to Python's codecs
        raise InvalidRequest("the body is not a form that can be read") from None
    try:
        return _sorted_out(items)
    except InvalidRequest:
        # a file whose end never came is known to the parser alone
        for file in parser._files_to_close_on_error:
            file.close()
        raise


async def _bounded(request: Request, most_bytes: int) -> AsyncGenerator[bytes, None]:
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > most_bytes + _OVERHEAD:
            raise BodyTooLarge(f"the file is larger than the {most_bytes:,} bytes that one may have; split it")
        yield chunk


def _sorted_out(items: list[tuple[str, UploadFile | str]]) -> Upload:
    files = [(name, value) for name, value in items if isinstance(value, UploadFile)]
    fields: dict[str, str] = {}
    for name, value in items:
        if not isinstance(value, str):
            continue
        if name in fields and not name.endswith(_LIST):
            raise InvalidRequest(f"the form has the field {name[:80]} twice; give it once", field=name[:80])
        fields[name] = f"{fields[name]},{value}" if name in fields else value
    if len(files) > 1:
        raise InvalidRequest("the form has several files; send one")
    if not files or files[0][0] != "file":
        raise InvalidRequest("the form has no file; send one in the field `file`, with a file name", field="file")
    name = files[0][1].filename or ""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise refuse("file", name, f"named in 1 to {_LONGEST_NAME} characters that can be printed")
    return Upload(fields, name, files[0][1])
