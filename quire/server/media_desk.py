"""MediaDesk: from the media of a conversation to what an engine takes, off the event loop and bounded in number."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from quire.config.multimodal import MultimodalConfig
from quire.core.errors import InvalidRequest, Overloaded
from quire.core.media import MediaItem
from quire.multimodal.fetch import MediaFetcher
from quire.multimodal.reader import MediaFile, PromptReader
from quire.protocol.media_parts import MediaSource, with_marks
from quire.server.store.files import Files
from quire.server.store.store import Store

_THREADS = 4
MOST_WAITING = 256
"""Conversations whose media may wait; the bodies that hold them are bounded by themselves."""


class EncodedPrompt(NamedTuple):
    """A conversation as the model reads it."""

    text: str
    tokens: list[int]
    media: tuple[MediaItem, ...] = ()


class MediaDesk:
    """Of one front; lives on its event loop."""

    def __init__(self, reader: PromptReader, config: MultimodalConfig, store: Store) -> None:
        self._reader = reader
        self._fetcher = MediaFetcher(config)
        self._most = int(config.media_max_mb * (1 << 20))
        self._files = Files(store)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="quire-media")
        self._num_waiting = 0

    def check(self, sources: Sequence[MediaSource]) -> None:
        """Before anything is rendered: how many there may be."""
        self._reader.check_counts([source.kind for source in sources])

    @property
    def cuts_texts(self) -> bool:
        """Whether the texts between media are tokenized one by one, each with what the tokenizer puts before a text."""
        return self._reader.cuts_texts

    def texts(self, prompt: str) -> list[str]:
        """The texts of a prompt that are tokenized one by one."""
        return self._reader.texts(prompt)

    def joined(self, texts: Sequence[list[int]]) -> list[int]:
        """What they become together, marks between them."""
        return self._reader.joined(texts)

    def knows(self, tokens: Sequence[int], sources: Sequence[MediaSource]) -> bool:
        """Whether a prompt marks a place for each of them."""
        return self._reader.marked(tokens) == [source.kind for source in sources]

    def marked(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Messages with marks of the model's own, for chat templates that show no media."""
        return with_marks(messages, self._reader.marks)

    async def read(
        self, tokens: list[int], sources: Sequence[MediaSource], tenant: str
    ) -> tuple[list[int], tuple[MediaItem, ...]]:
        """The prompt with placeholder tokens, and what they stand for. Raises an InvalidRequest that names the part."""
        if self._num_waiting >= MOST_WAITING:
            raise Overloaded(
                f"{self._num_waiting} conversations wait for their media, the most allowed; try again in seconds",
                retry_after=5.0,
            )
        self._num_waiting += 1
        try:
            uploaded = [await self._uploaded(source, tenant) for source in sources]
            work = asyncio.get_running_loop().run_in_executor(self._threads, self._read, tokens, sources, uploaded)
            return await work
        finally:
            self._num_waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._reader.close()

    def _read(
        self, tokens: list[int], sources: Sequence[MediaSource], uploaded: Sequence[bytes | None]
    ) -> tuple[list[int], tuple[MediaItem, ...]]:
        files: list[MediaFile] = []
        for source, data in zip(sources, uploaded, strict=True):
            found = self._fetcher.load(source.url or "", source.field) if data is None else data
            files.append((source.kind, found, source.field))
        return self._reader.read(tokens, files)

    async def _uploaded(self, source: MediaSource, tenant: str) -> bytes | None:
        """What is in an uploaded file, of the caller's own; None where the source is a URL."""
        if source.file_id is None:
            return None
        record = await self._files.get(tenant, source.file_id)
        if record is None:
            raise InvalidRequest(
                f"{source.field} names the file {source.file_id!r}, and there is none", field=source.field
            )
        if record.bytes > self._most:
            raise InvalidRequest(
                f"{source.field} names a file of {record.bytes:,} bytes; {self._most:,} are the most (--media-max-mb)",
                field=source.field,
            )
        return b"".join([piece async for piece in self._files.content(tenant, source.file_id)])
