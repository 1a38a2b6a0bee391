"""AudioDesk: where files of sound are read, in processes of their own, a few at a time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from quire.core.errors import Overloaded
from quire.multimodal.audio_reader import AudioLimits, AudioReader
from quire.multimodal.spectrogram import Spectrogram

_MOST_WAITING = 32
"""Files that wait to be read; each takes the memory of its bytes."""
_RETRY_AFTER = 10.0
"""Seconds."""


class AudioDesk:
    """Of one front."""

    def __init__(self, most_seconds: float) -> None:
        self._reader = AudioReader(AudioLimits(most_seconds=most_seconds))
        self._threads = ThreadPoolExecutor(self._reader.limits.at_once, thread_name_prefix="quire-audio")
        self._num_waiting = 0

    async def read(self, data: bytes, name: str, num_bins: int) -> Spectrogram:
        """Raises an InvalidRequest for what is no sound, or Overloaded."""
        if self._num_waiting >= _MOST_WAITING:
            raise Overloaded(
                f"{_MOST_WAITING} files wait to be read already; try again later", retry_after=_RETRY_AFTER
            )
        self._num_waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._reader.read, data, num_bins, name)
        finally:
            self._num_waiting -= 1
