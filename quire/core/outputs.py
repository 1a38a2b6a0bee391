"""What a caller gets back. Names and shapes follow vLLM's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.core.message import AnswerMessage
from quire.core.status import FinishReason


@dataclass(slots=True)
class Logprob:
    """One token's log probability."""

    logprob: float
    rank: int | None = None
    """1 is the most likely."""
    decoded_token: str | None = None


PositionLogprobs = dict[int, Logprob]
"""By token id: the most likely tokens at one position, and the one that stands there."""


@dataclass(slots=True)
class CompletionOutput:
    """One sequence of a request."""

    index: int
    """Its place among the sequences of its request."""
    text: str = ""
    """What it says so far, without a stop string unless that was asked for."""
    token_ids: list[int] = field(default_factory=list)
    """The tokens that were generated."""
    cumulative_logprob: float | None = None
    """Sum of the log probabilities of its tokens, where `logprobs` was asked for."""
    logprobs: Sequence[PositionLogprobs] | None = None
    """For each of its tokens, the most likely tokens there and the chosen one."""
    finish_reason: FinishReason | None = None
    """None while it is still being generated."""
    stop_reason: int | str | None = None
    """The token id or string that ended it, where one did (not for the model's own end token)."""
    error: str | None = None
    """Why it failed, where that is known and `finish_reason` is error."""

    schema_error: str | None = None
    """How the finished text falls short of a JSON schema that a grammar could hold only in part."""

    message: AnswerMessage | None = None
    """Of a chat: the text told apart into thinking, content and calls."""

    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason is not None


@dataclass(slots=True)
class Delta:
    """What one sequence has said since it was last read."""

    prompt: int
    """Place of its prompt among those asked together."""
    index: int
    """Its place among the sequences of that prompt."""
    text: str
    token_ids: list[int]
    logprobs: Sequence[PositionLogprobs] | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None


@dataclass(slots=True)
class RequestMetrics:
    """Seconds on the engine's clock."""

    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    finished_time: float | None = None
    cached_tokens: int = 0
    """Prompt tokens that the prefix cache already held."""


@dataclass(slots=True)
class RequestOutput:
    """A request and all its sequences, in order of their index."""

    request_id: str
    """What logs and `AsyncLLM.abort` call it."""
    prompt: str | None
    """None where it was given as tokens."""
    prompt_token_ids: list[int]
    """The prompt as the model reads it."""
    prompt_logprobs: Sequence[PositionLogprobs | None] | None
    """For each token of the prompt but the first, which is None; only where they were asked for."""
    outputs: list[CompletionOutput]
    """Its answers: `n` of them."""
    finished: bool
    """Whether all of them have ended."""
    metrics: RequestMetrics
    """When it arrived, began and ended, and how much of its prompt was cached."""


@dataclass(slots=True)
class BeamSearchSequence:
    """One beam, its prompt included."""

    tokens: list[int]
    cum_logprob: float
    """Its score: the logprob of its output over the output's length to the power of the length penalty."""
    text: str


@dataclass(slots=True)
class BeamSearchOutput:
    """The beams of one prompt, best first."""

    sequences: list[BeamSearchSequence]


@dataclass(slots=True)
class EmbeddingOutput:
    """A vector for a text."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass(slots=True)
class EmbeddingRequestOutput:
    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True


@dataclass(slots=True)
class PoolingOutput:
    """What was read off a text's hidden states: a vector, or a list of them with one for every token."""

    data: list[float] | list[list[float]]


@dataclass(slots=True)
class PoolingRequestOutput:
    request_id: str
    outputs: PoolingOutput
    prompt_token_ids: list[int]
    finished: bool = True


@dataclass(slots=True)
class ClassificationOutput:
    """How well each label of a classifier fits a text, in the order of its labels."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclass(slots=True)
class ClassificationRequestOutput:
    request_id: str
    outputs: ClassificationOutput
    prompt_token_ids: list[int]
    finished: bool = True


@dataclass(slots=True)
class ScoringOutput:
    """How alike two texts are, or how well the second answers the first."""

    score: float


@dataclass(slots=True)
class ScoringRequestOutput:
    request_id: str
    outputs: ScoringOutput
    prompt_token_ids: list[int]
    """Of both texts: as the model read them together, or with a padding token between them where it has one."""
    finished: bool = True
