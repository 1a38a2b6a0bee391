"""How an answer that may go on at another server travels: what its client reads, beside what another would need.

A router asks for it with the header `x-quire-journal`. The body of the answer is then frames: a note for the router and
the bytes for the client, which are the same as without the header. An answer goes on where it stands when the same body
is sent again with all that the notes said in front of it, as a `Resumption`; the header `x-quire-resume` says how many
bytes that is.
"""

import struct
from collections.abc import Iterator

import msgspec

from quire.core.errors import InvalidRequest, QuireError
from quire.core.status import FinishReason

JOURNAL_HEADER = "x-quire-journal"
"""Of a request: its answer is wanted in frames. Of an answer: `stream` where each frame is sent on as it comes, `whole`
where only the last one has something for the client."""
RESUME_HEADER = "x-quire-resume"
"""Of a request: how many bytes of its body are a Resumption."""
JOURNAL_VERSION = "1"
"""What a request asks for, and what /ready says in the same header that a server can do."""
STREAM, WHOLE = "stream", "whole"
_HEAD = struct.Struct(">II")
_LONGEST_NOTE = 16 * 2**20
_LONGEST_PAYLOAD = 64 * 2**20


class BrokenFrame(QuireError):
    """What came is no frame."""


class AnswerIdentity(msgspec.Struct, frozen=True):
    """What an answer says of itself, and what its noise and ids are drawn from: the same wherever it is made."""

    id: str
    created: int
    """Seconds since 1970."""
    seed: int


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """Tokens of one sequence."""

    prompt: int
    """Place of its prompt among those of the body."""
    index: int
    """Its place among the sequences of that prompt."""
    tokens: list[int]
    end: FinishReason | None = None
    """None while it goes on."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a frame tells the router."""

    identity: AnswerIdentity | None = None
    """In the first frame, if the answer can go on elsewhere."""
    prompt_tokens: int = 0
    """In the first frame."""
    news: list[Progress] = []
    """What the tokens were that the client reads of in this frame."""
    status: int = 0
    """In the last frame of a whole answer."""
    headers: list[tuple[str, str]] = []
    """More of the answer's headers, in that frame."""


class Resumption(msgspec.Struct, frozen=True):
    """An answer as far as its client has it."""

    identity: AnswerIdentity
    sequences: list[Progress]


def frame(note: Note, payload: bytes = b"") -> bytes:
    """One frame as it is sent."""
    head = _NOTE.encode(note)
    return _HEAD.pack(len(head), len(payload)) + head + payload


class FrameReader:
    """Bytes in whatever pieces they come; whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing of a frame is there that has not been given out."""
        return not self._buffer

    def feed(self, piece: bytes) -> Iterator[tuple[Note, bytes]]:
        """All frames that are complete now. Raises BrokenFrame."""
        self._buffer += piece
        while len(self._buffer) >= _HEAD.size:
            note_length, payload_length = _HEAD.unpack_from(self._buffer)
            if note_length > _LONGEST_NOTE or payload_length > _LONGEST_PAYLOAD:
                raise BrokenFrame(f"a frame of {note_length:,} and {payload_length:,} bytes is longer than any")
            end = _HEAD.size + note_length + payload_length
            if len(self._buffer) < end:
                return
            try:
                note = _READ_NOTE.decode(memoryview(self._buffer)[_HEAD.size : _HEAD.size + note_length])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise BrokenFrame(f"a frame's note cannot be read: {error}") from None
            payload = bytes(memoryview(self._buffer)[_HEAD.size + note_length : end])
            del self._buffer[:end]
            yield note, payload


def encode_resumption(resumption: Resumption) -> bytes:
    return msgspec.msgpack.encode(resumption)


def read_resumption(data: bytes) -> Resumption:
    """Raises InvalidRequest for anything else."""
    try:
        return _READ_RESUMPTION.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"what the answer goes on from cannot be read: {str(error)[:200]}", field=RESUME_HEADER
        ) from None


_NOTE = msgspec.msgpack.Encoder()
_READ_NOTE = msgspec.msgpack.Decoder(Note)
_READ_RESUMPTION = msgspec.msgpack.Decoder(Resumption)
