"""Members from a file: an address a line, read again when the file has changed."""

import asyncio
from pathlib import Path
from typing import get_args

from quire.core.errors import ConfigError
from quire.router.http.address import member_address
from quire.router.member import Role
from quire.router.sources.source import Named, SourceFailed

_LONGEST = 2**20


class FileSource:
    """`http://host:8000`, with `role=decode` or `drain` behind it where that is so; # begins a comment."""

    every = 1.0

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._read: tuple[int, int, int] | None = None
        """What the file was when it was last read."""

    async def look(self) -> list[Named] | None:
        return await asyncio.to_thread(self._look)

    def _look(self) -> list[Named] | None:
        try:
            about = self._path.stat()
            now = (about.st_mtime_ns, about.st_size, about.st_ino)
            if now == self._read:
                return None
            if about.st_size > _LONGEST:
                raise SourceFailed(f"the file has {about.st_size:,} bytes, which is no list of members")
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceFailed(f"it cannot be read: {error}") from None
        found = [_named(line.split("#", maxsplit=1)[0].split()) for line in text.splitlines()]
        self._read = now
        return [each for each in found if each is not None]


def _named(words: list[str]) -> Named | None:
    if not words:
        return None
    try:
        member_address(words[0])
    except ConfigError as error:
        raise SourceFailed(str(error)) from None
    role, is_draining = "both", False
    for word in words[1:]:
        if word == "drain":
            is_draining = True
        elif word.startswith("role=") and word.removeprefix("role=") in get_args(Role):
            role = word.removeprefix("role=")
        else:
            raise SourceFailed(f"{word!r} behind {words[0]} is neither drain nor one of role=both, prefill, decode")
    return Named(words[0], role, is_draining)  # type: ignore[arg-type]
