"""Whatever one side encodes the other decodes to the same."""

import msgspec
import pytest

from quire.config.engine import EngineConfig
from quire.core.logprobs import PositionLogprobs, PromptSpan
from quire.core.pooling_params import PoolingParams
from quire.core.prompt import Prompt
from quire.core.request import Emitted, Request
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.core.status import Status
from quire.serving import messages
from quire.serving.messages import decode_from_engine, decode_to_engine, encode

LOGPROBS = PositionLogprobs(5, -0.25, 1, ((5, -0.25), (7, -1.5)))
REQUEST = Request(
    id="r",
    prompt=Prompt((1, 2)),
    params=SamplingParams(n=2, stop="x", logit_bias={3: 1.5}, allowed_token_ids=(1, 3)),
    bad_words=((4, 5),),
    resume=(Emitted(1, (9,)),),
)


@pytest.mark.parametrize(
    "message",
    [
        messages.Submit(REQUEST),
        messages.End("r", 1, Status.STOPPED),
        messages.End("r"),
        messages.Hold("r"),
        messages.Resume("r"),
        messages.Submit(msgspec.structs.replace(REQUEST, pooling=PoolingParams("classify", types=(0, 1)))),
        messages.Weights({"a": 2.0}),
        messages.AskBlocks(),
        messages.AskCheck(),
        messages.AskAdapters(),
        messages.Profile(3, "file"),
        messages.EndProfile("file"),
        messages.Close(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_to_the_engine(message):
    assert decode_to_engine(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        messages.Started(8192, 16, 16, 576, seconds=[("loading", 1.5)]),
        messages.Waiting("host 1"),
        messages.StartFailed("too large"),
        messages.Report(
            EngineStats(step=3, running=2, kv_waste=0.5),
            [
                messages.SequenceNews("r", 0, [1, 2], Status.LENGTH, [LOGPROBS, LOGPROBS], 1.5, 7),
                messages.SequenceNews("e", 0, [], Status.STOPPED, pooled=[[0.5, 1.5]]),
            ],
            ["a"],
            [messages.Refused("b", "too long", "prompt", True)],
            [messages.PromptNews("r", PromptSpan(1, [LOGPROBS]))],
        ),
        messages.Blocks([0, 12, 4, 3], [("r", "tenant")]),
        messages.Experts([1, 2], [[0.5, 1.5], [1.0, 1.0]]),
        messages.Adapters([messages.AdapterSeen("sql", "device", 2, 1), messages.AdapterSeen("chat", "disk")]),
        messages.Checked(None, 0),
        messages.Profiled("file", 3, "no room"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_from_the_engine(message):
    assert decode_from_engine(encode(message)) == message


def test_the_settings_of_a_child_survive_the_way():
    config = EngineConfig.from_flat(model="gpt2", max_num_seqs=8, scheduling_policy="fair")
    settings = messages.ChildSettings(config, 5, "ipc://a", "ipc://b", 1, {"alice": 2.0})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(settings), type=messages.ChildSettings) == settings


def test_what_is_no_message_is_refused():
    with pytest.raises(msgspec.DecodeError):
        decode_to_engine(msgspec.msgpack.encode(["Nonsense", 1]))
