"""What front and engine say to each other: typed msgpack, one message a step however many streams there are.

Times are ages in seconds, never clocks: the two may run on different hosts.
"""

from typing import Literal

import msgspec

from quire.config.engine import EngineConfig
from quire.config.server import EngineRole
from quire.core.logprobs import PositionLogprobs, PromptSpan
from quire.core.pooling import Rows
from quire.core.request import Request
from quire.core.stats import EngineStats
from quire.core.status import Status


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


# -- front to engine -------------------------------------------------------------------------------------------


class Submit(_Message, frozen=True):
    """Take in a request, new or moved from a lost engine."""

    request: Request
    age: float = 0.0
    """Seconds since it arrived. Its `arrival` is on the front's clock, which is not the engine's on another host."""


class End(_Message, frozen=True):
    """A request, or one sequence of it, is over: its client left, or its text completed a stop string."""

    request_id: str
    index: int | None = None
    status: Status = Status.ABORTED


class Hold(_Message, frozen=True):
    """Leave a request out of every step: its reader is slow."""

    request_id: str


class Resume(_Message, frozen=True):
    """The reader caught up."""

    request_id: str


class Weights(_Message, frozen=True):
    """What tenants weigh in a fair schedule from now on; those that are not named weigh 1."""

    of_tenants: dict[str, float]


class Pull(_Message, frozen=True):
    """Fetch KV of a request's prompt from another engine: the request comes here later, and finds it."""

    request: Request
    source: str
    """Address at which that engine sends KV."""
    is_computing: bool = False
    """Whether that engine computes this very request now; else it has computed the same prefix before."""


class AskBlocks(_Message, frozen=True):
    """Tell the state of every KV block."""


class AskExperts(_Message, frozen=True):
    """Tell how often tokens chose each expert."""


class AskAdapters(_Message, frozen=True):
    """Tell where LoRA adapters are, and how many requests use them."""


class AskCheck(_Message, frozen=True):
    """Prove that the KV bookkeeping is consistent."""


class Profile(_Message, frozen=True):
    """Record the next steps into a file."""

    steps: int
    path: str


class EndProfile(_Message, frozen=True):
    """Write what has been recorded into this file, with as many steps as there were."""

    path: str


class Sleep(_Message, frozen=True):
    """Give memory back until a request comes; level 1 or 2."""

    level: int


class WakeUp(_Message, frozen=True):
    """Be ready for requests before one comes."""


class Close(_Message, frozen=True):
    """End the process."""


ToEngine = (
    Submit
    | End
    | Hold
    | Resume
    | Weights
    | Pull
    | AskBlocks
    | AskExperts
    | AskAdapters
    | AskCheck
    | Profile
    | EndProfile
    | Sleep
    | WakeUp
    | Close
)


# -- engine to front -------------------------------------------------------------------------------------------


class Started(_Message, frozen=True):
    """The engine takes requests from now on."""

    max_model_len: int
    max_num_seqs: int
    block_size: int
    embedding_size: int
    generates: bool = True
    """False: an encoder or a classifier, which only reads."""
    seconds: list[tuple[str, float]] = []
    """Where the start-up time went."""
    pid: int = 0
    """Of the engine's process, on its host."""
    role: EngineRole = "both"
    kv_address: str = ""
    """Where it sends KV to other engines; nothing: it does not."""


class Waiting(_Message, frozen=True):
    """The engine cannot start yet, and is not stuck: it waits for something that is not its own to do."""

    what: str


class StartFailed(_Message, frozen=True):
    """The engine cannot be started with these settings; trying again would not help."""

    message: str


class Lost(_Message, frozen=True):
    """The engine is gone, and another is started. Said to fronts on other hosts, which see no process end, and by a
    process that ends with an exception."""

    cause: str


class Refused(_Message, frozen=True):
    """A request can never run."""

    request_id: str
    message: str
    field: str | None
    too_large: bool


class SequenceNews(_Message, frozen=True):
    """What one sequence has come to since the last report."""

    request_id: str
    index: int
    tokens: list[int]
    status: Status | None = None
    """Its end; None while it goes on."""
    logprobs: list[PositionLogprobs] | None = None
    granted_ago: float | None = None
    """Seconds since it first got a row; with its first tokens only."""
    num_cached: int = 0
    failure: str | None = None
    """Why it failed, where there is more to say than that it did."""
    is_blameless: bool = False
    """Whether that is no fault of its client."""
    pooled: Rows | None = None
    """What was read off its prompt; it has ended by it."""


class PromptNews(_Message, frozen=True):
    """What the model thought of a stretch of a prompt."""

    request_id: str
    span: PromptSpan


class Report(_Message, frozen=True):
    """All that a step brought; with nothing in it, a sign of life."""

    stats: EngineStats
    sequences: list[SequenceNews] = []
    accepted: list[str] = []
    refused: list[Refused] = []
    prompts: list[PromptNews] = []


class Blocks(_Message, frozen=True):
    """Every KV block, as runs of blocks that are alike: value, length, value, length, … in the order of their ids."""

    runs: list[int]
    """Values are FREE, CACHED, SHARED, USED, and from OWNED on a place in `requests`."""
    requests: list[tuple[str, str]] = []
    """Ids and tenants of those that own blocks."""


class Experts(_Message, frozen=True):
    """How tokens of the last seconds were spread over experts."""

    layers: list[int] = []
    """Those that have experts; none: the model has no experts, or nobody counts."""
    shares: list[list[float]] = []
    """By layer and expert: its tokens in those of an average expert; zeros where none came."""


Place = Literal["device", "host", "disk"]
"""Where a LoRA adapter is at best: those on the device are in host memory too, unless others took their room."""


class AdapterSeen(msgspec.Struct, frozen=True, array_like=True):
    """A LoRA adapter as an engine has it."""

    name: str
    place: Place
    running: int = 0
    """Requests that use it, or wait for nothing but its copy to the device."""
    waiting: int = 0
    """Requests that wait because the device has no room for it."""


class Adapters(_Message, frozen=True):
    """LoRA adapters on the device, those that wait for room there, and those in host memory; none are told twice."""

    adapters: list[AdapterSeen] = []


class Checked(_Message, frozen=True):
    """The outcome of a check of the books; None: they balance."""

    problem: str | None
    used_blocks: int


class Profiled(_Message, frozen=True):
    """A profile is written, unless there is a problem or no step was recorded."""

    path: str
    steps: int
    problem: str | None = None


class Slept(_Message, frozen=True):
    """The engine sleeps at this level now, or at 0 is awake."""

    level: int
    problem: str | None = None
    """Why it does not sleep, where it was asked to."""


FromEngine = Started | Waiting | StartFailed | Lost | Report | Blocks | Experts | Adapters | Checked | Profiled | Slept


class ChildSettings(msgspec.Struct, frozen=True):
    """How an engine process is started; the first frame on its standard input."""

    config: EngineConfig
    seed: int
    inbox: str
    """Address at which the engine listens."""
    outbox: str
    """Address at which the front listens."""
    replica: int
    tenant_weights: dict[str, float] = {}
    memory_share: float = 1.0
    """Of its device's memory: less than 1 where several engines share the device."""
    role: EngineRole = "both"
    kv_listen: str = ""
    """Where it is to send KV from; nothing: it sends and fetches none."""
    kv_secret: bytes = b""
    """What engines that exchange KV share."""


def encode(message: ToEngine | FromEngine) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_to_engine(data: bytes) -> ToEngine:
    return _TO_ENGINE.decode(data)


def decode_from_engine(data: bytes) -> FromEngine:
    return _FROM_ENGINE.decode(data)


_TO_ENGINE: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_FROM_ENGINE: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
