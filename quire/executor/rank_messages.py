"""What the first rank's process and the others' say to each other: msgpack in frames, over a socket. No pickle."""

import socket
import struct

import msgspec

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.core.adapter import AdapterRef
from quire.core.plan import LayerCopies, StepPlan
from quire.core.plugins import loaded_versions
from quire.core.rank_place import RankPlace
from quire.core.result import EncoderFigures, StepResult
from quire.core.structured import StructuredOutput

_LENGTH = struct.Struct("<I")


class RankSettings(msgspec.Struct, frozen=True):
    """What a rank's process starts with."""

    rank: int
    path: str
    """Of the model's files."""
    asked: EngineConfig
    device: DeviceFacts
    """What the first rank resolved its settings for: all ranks come to the same."""
    meeting: str
    """Where ranks find each other: a file, or tcp://host:port."""
    seed: int
    place: RankPlace
    file_bytes: int = 0
    """Of the model's weights and of what drafts for it, as the first rank's host has them; 0: it is the same host."""
    plugins: dict[str, str] = msgspec.field(default_factory=loaded_versions)
    """By package: its version, of those whose plugins the first rank has loaded."""


class Hello(msgspec.Struct, frozen=True):
    """The first word of a rank on another host, once both sides have proved themselves."""

    node: int
    """Of its host, by --node-rank; with Ray all are 0."""
    local_rank: int
    """Its number on that host; with Ray its rank."""
    host: str
    """What its host is called."""
    pid: int
    address: str
    """Of its host, towards the first rank."""


class RunStep(msgspec.Struct, frozen=True, tag="step"):
    """Compute a step together with all other ranks."""

    plan: StepPlan


class WarmUp(msgspec.Struct, frozen=True, tag="warm_up"):
    """Do one piece of the warm-up, as all ranks do now."""


class SleepRank(msgspec.Struct, frozen=True, tag="sleep"):
    """Give the rank's memory back until it is woken up."""


class WakeRank(msgspec.Struct, frozen=True, tag="wake_up"):
    """Take it again."""


class FetchAdapter(msgspec.Struct, frozen=True, tag="fetch_adapter"):
    """Read the rank's part of a LoRA adapter into host memory."""

    number: int
    """Of the errand; the answer has it too."""
    ref: AdapterRef


class PlaceAdapter(msgspec.Struct, frozen=True, tag="place_adapter"):
    """Copy it to the device, to these pages."""

    number: int
    ref: AdapterRef
    slot: int
    pages: list[int]


class FetchExperts(msgspec.Struct, frozen=True, tag="fetch_experts"):
    """Read those copies of a layer's experts into host memory that are to be the rank's and are not yet."""

    number: int
    copies: LayerCopies


class TellLoad(msgspec.Struct, frozen=True, tag="tell_load"):
    """Say how many tokens have chosen each expert."""

    number: int


class ReadStep(msgspec.Struct, frozen=True, tag="read_step"):
    """Say what a step came to, where each rank has sequences of its own."""

    number: int
    step: int


class PrepareGrammar(msgspec.Struct, frozen=True, tag="prepare_grammar"):
    """Compile a grammar, where each rank draws for sequences of its own."""

    number: int
    structured: StructuredOutput
    vocabulary: bytes
    """What grammars are compiled for, with the first of them; later nothing."""


class Arrived(msgspec.Struct, frozen=True, tag="arrived"):
    """The rank knows what to load, and goes to meet the others."""


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The rank lives."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The rank has its part of the model."""

    weight_bytes: int


class ErrandDone(msgspec.Struct, frozen=True, tag="errand_done"):
    """What was asked for beside the steps is done."""

    number: int
    failure: str | None
    """What went wrong; None: nothing."""


class LoadTold(msgspec.Struct, frozen=True, tag="load_told"):
    """The answer to `TellLoad`."""

    number: int
    loads: dict[int, list[int]]
    """By layer of the rank and by expert, in 32 bits, which wrap around."""


class StepRead(msgspec.Struct, frozen=True, tag="step_read"):
    """The answer to `ReadStep`."""

    number: int
    result: StepResult


class MediaEncoded(msgspec.Struct, frozen=True, tag="media_encoded"):
    """What became of media in a step, said unasked by the first stage of a pipeline."""

    figures: EncoderFigures


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The rank is about to end, and why."""

    kind: str
    """Of the error: its class."""
    message: str


Errand = FetchAdapter | PlaceAdapter | FetchExperts | TellLoad | ReadStep | PrepareGrammar
Command = RunStep | WarmUp | SleepRank | WakeRank | Errand
Answer = Arrived | Beat | Ready | ErrandDone | LoadTold | StepRead | MediaEncoded | Failed

FRAME_HEAD = _LENGTH.size
LOOK_ELSEWHERE = b""
"""In the ring of plans: the next message is too large for it, and comes over the socket."""
_encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_settings = msgspec.msgpack.Decoder(RankSettings).decode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def frame(message: object) -> bytes:
    """A message as it is sent, to however many ranks."""
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


def receive(connection: socket.socket) -> bytes | None:
    """The next message; None where the other side has closed."""
    head = _exactly(connection, _LENGTH.size)
    return None if head is None else _exactly(connection, _LENGTH.unpack(head)[0])


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        count = connection.recv_into(view[filled:])
        if count == 0:
            return None
        filled += count
    return bytes(data)
