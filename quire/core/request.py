"""A request: what a client asked, as it travels to an engine. Frozen, msgpack-able, with no device in it."""

import msgspec

from quire.core.media import MediaItem
from quire.core.pooling_params import PoolingParams
from quire.core.prompt import Prompt
from quire.core.sampling_params import SamplingParams

DEFAULT_TENANT = "default"
NO_ANSWER = SamplingParams(max_tokens=1, detokenize=False)
"""The parameters of a request that is read out: nothing is sampled, so only its treatment may differ."""


class Emitted(msgspec.Struct, frozen=True, array_like=True):
    """What a sequence had already produced when its engine was lost; the new engine goes on behind it."""

    index: int
    tokens: tuple[int, ...]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Its sequences (`params.n` of them) live in the scheduler."""

    id: str
    prompt: Prompt
    params: SamplingParams
    pooling: PoolingParams | None = None
    """What is read off the prompt; then it has no answer, and of `params` only its treatment counts."""
    arrival: float = 0.0
    """Seconds on the engine's clock."""
    tenant: str = DEFAULT_TENANT
    """Whose share of a fair schedule it uses."""
    eos_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    """The parameters' bad words as tokens."""
    kv_variant: str = ""
    """What beside its tokens decides its KV: requests of different variants share no prefix."""
    media: tuple[MediaItem, ...] = ()
    """What the prompt's media keys name, in the same order."""
    resume: tuple[Emitted, ...] = ()
    """The sequences still to finish, when the request moves here from a lost engine; empty for a new one."""

    @property
    def reads_every_token(self) -> bool:
        """Whether it asks for more of its prompt than the last hidden state: then no token of it may be skipped."""
        return self.pooling is not None and self.pooling.reads_every_token

    def stop_ids(self) -> frozenset[int]:
        """Token ids that end a sequence of this request."""
        eos = () if self.params.ignore_eos else self.eos_token_ids
        return frozenset((*eos, *self.params.stop_token_ids))

    def deadline(self) -> float | None:
        """When it must have ended, in seconds on the engine's clock."""
        return None if self.params.deadline is None else self.arrival + self.params.deadline
