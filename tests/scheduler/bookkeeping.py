"""What the scheduler's tests share: schedulers of a few blocks, and an exact stand-in for a model and its device.

`ReferenceDevice` keeps real content in real blocks: what stands in a slot is the hash of the whole prefix that
leads to it. It applies plans like a worker, checks before every token that all KV it looks at is the right one,
and samples a token that depends on everything before it. Any wrong share, copy, swap or eviction shows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from quire.config.resolved import KVGroup, KVLayout, PreemptionCosts, PreemptionMode, StepLimits
from quire.core.plan import Admission, StepPlan
from quire.core.pooling import Pooling, Rows
from quire.core.pooling_params import PoolingParams
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sampling_params import SamplingParams
from quire.kvcache.manager import KVManager
from quire.scheduler.draft_length import DraftLength
from quire.scheduler.pacing import Pacer
from quire.scheduler.policies.choose import make_policy
from quire.scheduler.scheduler import Scheduler

VOCABULARY = 5
EOS = 4
FULL = (KVGroup((0,)),)

POLICY_OPTIONS: dict[str, dict[str, Any]] = {
    "fcfs": {},
    "sjf": {"tokens_per_second": 10.0},
    "round-robin": {"slice_tokens": 4},
    "priority": {"ageing": 5.0},
    "fair": {"quantum": 8.0},
}


def make_scheduler(
    *,
    num_blocks: int = 64,
    num_cpu_blocks: int = 0,
    block_size: int = 4,
    groups: tuple[KVGroup, ...] = FULL,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 32,
    max_model_len: int = 128,
    caching: bool = True,
    policy: str = "fcfs",
    preemption: PreemptionMode = "auto",
    long_prefill_token_threshold: int = 0,
    num_drafts: int = 0,
    queue_timeout: float | None = None,
    pacer: Pacer | None = None,
    whole_prompts: bool = False,
    numbers: Iterator[int] | None = None,
) -> Scheduler:
    layout = KVLayout(block_size, num_blocks, num_cpu_blocks, groups, block_bytes=1, bytes_per_token=1, dtype="float32")
    limits = StepLimits(
        max_num_seqs,
        max_num_batched_tokens,
        max_model_len,
        long_prefill_token_threshold,
        2 * num_drafts,
        num_drafts,
        whole_prompts=whole_prompts,
    )
    return Scheduler(
        limits,
        KVManager(layout, caching),
        make_policy(policy, POLICY_OPTIONS[policy]),
        preemption,
        PreemptionCosts(seconds_per_token=1.0, seconds_per_block=2.0),
        pacer,
        queue_timeout,
        AlwaysAll(num_drafts) if num_drafts else None,
        numbers=numbers,
    )


class AlwaysAll(DraftLength):
    """As many drafts as there may be, whatever the clock says."""

    def choose(self, decodes: int) -> int:
        return self.most


def make_request(
    name: str,
    prompt: list[int],
    *,
    arrival: float = 0.0,
    tenant: str = "default",
    pooling: Pooling | None = None,
    **params: Any,
) -> Request:
    """With a pooling, one that is read out."""
    params.setdefault("max_tokens", 8)
    return Request(
        id=name,
        prompt=Prompt(tuple(prompt)),
        params=SamplingParams(**params),
        pooling=None if pooling is None else PoolingParams("embed", pooling),
        arrival=arrival,
        tenant=tenant,
        eos_token_ids=(EOS,),
    )


def mix(*parts: int) -> int:
    """A hash that is the same in every process."""
    return hash(parts)


def root_of(params: SamplingParams) -> int:
    return mix(0, 0 if params.cache_salt is None else crc32(params.cache_salt.encode()))


def next_token(prefix: int, index: int) -> int:
    """What the stand-in model samples behind a prefix, for the sequence `index` of its request."""
    return mix(prefix, index, 1) % VOCABULARY


def expected_tokens(request: Request, index: int, max_total: int) -> list[int]:
    """What a sequence must produce whatever happens around it."""
    prefix = root_of(request.params)
    for token in request.prompt.tokens:
        prefix = mix(prefix, token)
    output: list[int] = []
    while len(request.prompt.tokens) + len(output) < max_total:
        token = next_token(prefix, index)
        output.append(token)
        prefix = mix(prefix, token)
        if token in request.stop_ids() and len(output) >= request.params.min_tokens:
            break
    return output


def expected_readout(request: Request) -> Rows:
    """What is read off a prompt: the hash of every prefix that counts."""
    prefixes = [root_of(request.params)]
    for token in request.prompt.tokens:
        prefixes.append(mix(prefixes[-1], token))
    return [prefixes[1:] if request.reads_every_token else prefixes[-1:]]


@dataclass
class Row:
    index: int
    root: int
    tokens: list[int]
    num_computed: int
    tables: list[list[int]]
    prefixes: list[int] = field(default_factory=list)
    pooling: PoolingParams | None = None
    drafts: list[int] = field(default_factory=list)
    """What it proposes behind its tokens."""
    gathered: list[int] = field(default_factory=list)
    """Hashes of the prefixes that were computed in this row."""

    def prefix(self, position: int, drafts: list[int]) -> int:
        """Hash of everything up to `position`, drafts included behind the known tokens."""
        known = len(self.tokens)
        while len(self.prefixes) <= min(position, known - 1):
            at = len(self.prefixes)
            self.prefixes.append(mix(self.prefixes[at - 1] if at else self.root, self.tokens[at]))
        if position < known:
            return self.prefixes[position]
        value = self.prefix(known - 1, [])
        for token in drafts[: position - known + 1]:
            value = mix(value, token)
        return value


class ReferenceDevice:
    """Runs plans in order."""

    def __init__(self, scheduler: Scheduler, *, tells: bool = False) -> None:
        """`tells`: the host learns in time how many drafts are ready, as of a CPU."""
        kv = scheduler.kv
        self._block_size = kv.block_size
        self._windows = [group.window for group in kv.groups]
        self._memory: list[dict[int, int]] = [{} for _ in range(kv.device.pool.num_blocks + 1)]
        self._host: list[dict[int, int]] = [{} for _ in range(kv.host.pool.num_blocks + 1)]
        self._rows: dict[int, Row] = {}
        self._most_drafts = scheduler.limits.num_drafts
        self._tells = tells
        self.num_computed = 0

    def reset(self) -> None:
        """Forget all rows, as after a step that failed."""
        self._rows = {}

    def run(self, plan: StepPlan) -> StepResult:
        for move in plan.swap_out:
            self._host[move.target] = dict(self._memory[move.source])
        for move in plan.swap_in:
            self._memory[move.target] = dict(self._host[move.source])
        for move in plan.copies:
            self._memory[move.target] = dict(self._memory[move.source])
        for row in plan.released:
            self._rows.pop(row, None)
        for admission in plan.admitted:
            self._admit(admission)
        for delta in plan.table_deltas:
            for table, blocks in zip(self._rows[delta.row].tables, delta.tables, strict=True):
                table[delta.start :] = blocks
        assert len(set(plan.rows)) == len(plan.rows), "a row twice in a batch"
        # every layer writes the whole batch before it attends: all writes come before all reads
        granted = plan.num_drafts + [0] * (len(plan.rows) - len(plan.num_drafts))
        batch = [
            (self._rows[row], count, (self._rows[row].drafts + [0] * self._most_drafts)[:drafts])
            for row, count, drafts in zip(plan.rows, plan.counts, granted, strict=True)
        ]
        for row, count, drafts in batch:
            self._write(row, count, drafts)
        for row, count, drafts in batch:
            self._read(row, count, drafts)
        return self._finish(plan, batch)

    def _admit(self, admission: Admission) -> None:
        assert admission.row not in self._rows, "a row given away twice"
        tables = [list(table) for table in admission.tables]
        root = root_of(admission.params)
        row = Row(admission.index, root, list(admission.tokens), admission.num_computed, tables)
        row.pooling = admission.pooling
        self._rows[admission.row] = row

    def _write(self, row: Row, count: int, drafts: list[int]) -> None:
        assert count > 0
        end = row.num_computed + count
        assert end <= len(row.tokens) + len(drafts), "computes tokens that are not known"
        self.num_computed += count
        for position in range(row.num_computed, end):
            for table in row.tables:
                block = table[position // self._block_size]
                assert block != 0, "writes into the null block"
                self._memory[block][position % self._block_size] = row.prefix(position, drafts)

    def _read(self, row: Row, count: int, drafts: list[int]) -> None:
        for window, table in zip(self._windows, row.tables, strict=True):
            first = 0 if window is None else max(0, row.num_computed - window + 1)
            for position in range(first, row.num_computed + count):
                found = self._memory[table[position // self._block_size]].get(position % self._block_size)
                assert found == row.prefix(position, drafts), f"wrong KV at position {position}"

    def _finish(self, plan: StepPlan, batch: list[tuple[Row, int, list[int]]]) -> StepResult:
        tokens: list[int] = []
        counts: list[int] = []
        proposed: list[int] = []
        pooled: dict[int, Rows] = {}
        for position, (row, count, drafts) in enumerate(batch):
            if row.pooling is not None:
                assert position >= plan.num_sampling, "samples though it is only read"
                row.gathered += [row.prefix(row.num_computed + place, []) for place in range(count)]
                row.num_computed += count
                if row.num_computed == len(row.tokens):
                    pooled[position] = [row.gathered if row.pooling.reads_every_token else row.gathered[-1:]]
                continue
            if position >= plan.num_sampling:
                row.num_computed += count
                assert row.num_computed < len(row.tokens), "reached its last token but was not to sample"
                continue
            assert row.num_computed + count == len(row.tokens) + len(drafts), "samples before its last known token"
            accepted = self._verify(row, drafts)
            row.num_computed = len(row.tokens)
            row.tokens.extend(accepted)
            row.num_computed += len(accepted) - 1
            tokens.extend(accepted)
            counts.append(len(accepted))
            row.drafts = self._propose(row)[: self._most_drafts]
            proposed.append(len(row.drafts))
        verified = bool(plan.num_drafts)
        return StepResult(
            step=plan.step,
            tokens=tokens,
            counts=counts if verified else None,
            num_drafted=sum(plan.num_drafts),
            num_proposed=proposed if self._tells else None,
            pooled=pooled,
            elapsed=0.01,
        )

    def _verify(self, row: Row, drafts: list[int]) -> list[int]:
        """The drafts the model agrees with, and the token it samples behind them."""
        accepted: list[int] = []
        prefix = row.prefix(len(row.tokens) - 1, [])
        for draft in [*drafts, None]:
            token = next_token(prefix, row.index)
            accepted.append(token)
            if token != draft:
                break
            prefix = mix(prefix, token)
        return accepted

    def _propose(self, row: Row) -> list[int]:
        """A right guess followed by one that is right one time in five, or nothing."""
        prefix = row.prefix(len(row.tokens) - 1, [])
        right = next_token(prefix, row.index)
        return [] if prefix % 7 == 0 else [right, right, 0]
