"""A sequence: one stream of tokens of a request, and how far its KV has been computed.

There is no prefill mode and no decode mode: a sequence has tokens and has computed some of them, and
every step grants tokens so that the second number catches up with the first.
"""

from quire.core.errors import QuireError
from quire.core.request import Request
from quire.core.status import TRANSITIONS, Status

NO_ROW = -1


class IllegalTransition(QuireError):
    """A sequence was asked to go from one state to one that may not follow it."""


class Sequence:
    """Plain integers the scheduler reads every step. How much is computed changes only by what the methods name."""

    __slots__ = (
        "arrival",
        "block_names",
        "failure",
        "first_granted",
        "id",
        "index",
        "is_blameless",
        "kv_variant",
        "max_total",
        "min_total",
        "num_cached",
        "num_computed",
        "num_pending",
        "num_preemptions",
        "num_prompt",
        "num_proposed",
        "num_slots",
        "num_unverified",
        "register_at",
        "request",
        "row",
        "status",
        "stop_ids",
        "tokens",
        "turn",
    )

    def __init__(
        self, seq_id: int, request: Request, index: int, max_total: int, emitted: tuple[int, ...] = ()
    ) -> None:
        params = request.params
        self.id = seq_id
        self.request = request
        self.index = index
        self.arrival = request.arrival
        self.status = Status.WAITING
        self.tokens: list[int] = [*request.prompt.tokens, *emitted]
        self.num_prompt = len(request.prompt.tokens)
        self.max_total = max_total
        """Tokens, prompt included, at which it ends for length."""
        self.min_total = self.num_prompt + params.min_tokens
        """Tokens, prompt included, before which a stop token does not end it."""
        self.stop_ids = request.stop_ids()
        self.num_pending = 0
        """Placeholders: tokens that steps whose results have not been read yet may yield, if all drafts are right."""
        self.num_unverified = 0
        """Of those, drafts: they may be wrong, and then these tokens do not come."""
        self.num_proposed = 0
        """Drafts that the device has ready behind its last token, at most."""
        self.num_computed = 0
        """Tokens whose KV is in the cache once every step planned so far has run, if all drafts are right."""
        self.num_slots = 0
        """Tokens its blocks can hold; writing beyond them (or into a shared block) asks the KV manager first."""
        self.register_at = 0
        """`num_computed` from which the KV manager has a full block to give a name."""
        self.block_names: list[bytes] = []
        """Chain names of its full blocks, kept by the KV manager; tokens are only appended, so they stay true."""
        self.kv_variant = request.kv_variant
        """What beside its tokens decides its KV."""
        self.failure: str | None = None
        """Why it failed, in words for its client, where that is known."""
        self.is_blameless = False
        """Whether it failed through no fault of its client."""
        self.row = NO_ROW
        self.turn = 0
        """Of a pipeline: the last step that sampled for it."""
        self.num_preemptions = 0
        self.first_granted: float | None = None
        self.num_cached = 0
        """Tokens the prefix cache held when it first got a row."""

    @property
    def num_tokens(self) -> int:
        """Known tokens and placeholders: no more than these can there be."""
        return len(self.tokens) + self.num_pending

    @property
    def fewest_tokens(self) -> int:
        """Known tokens and placeholders, if all drafts are wrong."""
        return len(self.tokens) + self.num_pending - self.num_unverified

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def is_finished(self) -> bool:
        return self.status >= Status.STOPPED

    def grant(self, until: int) -> None:
        """A step computes its tokens up to `until`; from now on they count as computed."""
        self.num_computed = until

    def grant_drafts(self, num_drafts: int) -> None:
        """Behind its last token, which a step computes, so many drafts are computed and verified."""
        self.num_computed += num_drafts
        self.num_pending += num_drafts
        self.num_unverified += num_drafts

    def verified(self, num_drafts: int, num_accepted: int) -> None:
        """Of so many drafts that it was granted, the first few are its tokens."""
        self.num_unverified -= num_drafts
        self.num_pending -= num_drafts - num_accepted
        if self.num_computed:  # else its blocks were lost meanwhile
            self.num_computed -= num_drafts - num_accepted

    def find_cached(self, num_tokens: int) -> None:
        """The prefix cache holds so many of its first tokens."""
        self.num_computed = num_tokens

    def fork_at(self, num_tokens: int) -> None:
        """It begins with so many tokens that a sibling has computed."""
        self.num_computed = num_tokens

    def lose_kv(self) -> None:
        """It has no block any more: all is to be computed again."""
        self.num_computed = self.num_slots = 0

    def become(self, status: Status) -> None:
        """Move to another state; raises when the table of transitions does not allow it."""
        if status not in TRANSITIONS[self.status]:
            raise IllegalTransition(f"sequence {self.id} cannot go from {self.status.name} to {status.name}")
        self.status = status

    def __repr__(self) -> str:
        return (
            f"Sequence({self.id}, {self.status.name}, tokens={len(self.tokens)}+{self.num_pending}, "
            f"computed={self.num_computed}, row={self.row})"
        )
