"""BatchRecord: what is known of one batch, as the store keeps it and as OpenAI's clients read it."""

from typing import Any, Literal, Self

import msgspec

from quire.server.batches.lines import Problem

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
ENDED: frozenset[Status] = frozenset(("failed", "completed", "expired", "cancelled"))
_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


class Counts(msgspec.Struct, kw_only=True):
    """What became of the requests of a batch so far."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for a batch: enough to run its requests as theirs after a restart."""

    tenant: str
    priority: int | None = None
    cache_salt: str | None = None
    models: tuple[str, ...] | None = None


class BatchRecord(msgspec.Struct, kw_only=True):
    """One batch. Times are whole seconds since 1970."""

    id: str
    sender: Sender
    endpoint: str
    input_file_id: str
    created_at: int
    expires_at: int
    completion_window: str
    metadata: dict[str, str] | None = None
    output_seconds: int | None = None
    """How long its output files are kept; None: until they are deleted."""
    status: Status = "validating"
    ending: Status | None = None
    """What it becomes once its files are written; set with `finalizing`, and with `cancelling`."""
    times: dict[str, int] = msgspec.field(default_factory=dict)
    """When it came to each status."""
    errors: list[Problem] = msgspec.field(default_factory=list)
    counts: Counts = msgspec.field(default_factory=Counts)
    output_file_id: str | None = None
    error_file_id: str | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def become(self, status: Status, now: float) -> None:
        self.status = status
        self.times[status] = int(now)

    def document(self) -> dict[str, Any]:
        """As the store keeps it."""
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return kept

    @classmethod
    def of(cls, document: object) -> Self:
        return msgspec.convert(document, cls)

    def body(self) -> dict[str, Any]:
        """As clients read it."""
        errors = {"object": "list", "data": msgspec.to_builtins(self.errors)} if self.errors else None
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": errors,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "status": self.status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            **{f"{status}_at": self.times.get(status) for status in _TIMES},
            "request_counts": msgspec.to_builtins(self.counts),
            "metadata": self.metadata,
        }
