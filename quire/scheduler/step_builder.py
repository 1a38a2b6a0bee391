"""StepBuilder: a step while it is planned: what is left of its budget, and what was granted so far."""

from dataclasses import dataclass

from quire.core.plan import Admission, Move, StepPlan, TableDelta
from quire.core.sequence import Sequence
from quire.scheduler.pacing import StepLoad


@dataclass(slots=True)
class Flight:
    """A planned step whose result has not been read."""

    step: int
    sampling: list[Sequence]
    """In the order of the plan's sampling rows."""
    others: list[Sequence]
    """Prompt chunks that yield no token: unfinished ones, and prompts that are read out."""
    num_drafts: list[int]
    """Drafts under verification, by sampling row; nothing where there are none."""
    load: StepLoad
    most_drafts: int = 0
    """Drafts that each of its decodes could have."""
    has_prompts: bool = False
    """Whether any row computes more than its next token and what a grammar has forced in front of it."""


class StepBuilder:
    """Collects grants. The first rows of the batch are those that sample, answers before ends of prompts; of the others
    parts of prompts come first, so that all prompts stand together."""

    def __init__(self, step: int, budget: int) -> None:
        self.step = step
        self.tokens_left = budget
        self.prompt_tokens_left = budget
        self.readout_tokens_left = budget
        """Of those, tokens of prompts that are only read: streams beside them are to keep their pace."""
        self.num_encoded = 0
        """Embeddings of media that the step makes."""
        self.promised = 0
        """Blocks that prompts begun earlier will still need."""
        self.computing: dict[bytes, Sequence] = {}
        """Names of the full blocks that prompt chunks of this step compute, and whose chunks."""
        self.load = StepLoad()
        self.sampling: list[Sequence] = []
        self.sampling_counts: list[int] = []
        self.others: list[Sequence] = []
        self.other_counts: list[int] = []
        self.prompts: list[Sequence] = []
        """Sequences that were granted a prompt chunk, in either list."""
        self.unfinished: list[Sequence] = []
        """Running sequences with more than a decode to compute, in order."""
        self.most_drafts = 0
        """Drafts of each decode."""
        self.num_drafts: list[int] = []
        """By sequence that samples, the decodes that come first; none: there are no drafts."""
        self.has_prompts = False
        """Whether there is any chunk but of answers that sample."""
        self.admitted: list[Admission] = []
        self.num_sources = 0
        """Of those, with media for the model's encoder."""
        self.table_deltas: list[TableDelta] = []

    def tokens_left_for(self, seq: Sequence) -> int:
        """How many tokens of its prompt a sequence may have."""
        if seq.request.pooling is None:
            return self.prompt_tokens_left
        return min(self.prompt_tokens_left, self.readout_tokens_left)

    def add_chunk(self, seq: Sequence, count: int, *, samples: bool) -> None:
        """`seq` computes `count` tokens, all of its prompt or all of its answer."""
        self.prompts.append(seq)
        seqs, counts = (self.sampling, self.sampling_counts) if samples else (self.others, self.other_counts)
        is_prompt, place = _computes_prompt(seq), len(seqs)
        self.has_prompts |= is_prompt or not samples
        goes_first = samples != is_prompt  # answers that sample, and prompts that do not
        if goes_first and seqs and _computes_prompt(seqs[-1]) != is_prompt:
            place = sum(_computes_prompt(other) == is_prompt for other in seqs)
        seqs.insert(place, seq)
        counts.insert(place, count)

    def build(self, released: list[int], moves: tuple[list[Move], list[Move], list[Move]]) -> tuple[StepPlan, Flight]:
        """The finished plan, and what the scheduler must remember until its result comes."""
        swap_out, swap_in, copies = moves
        num_drafts = self.num_drafts
        if num_drafts:
            num_drafts = num_drafts + [0] * (len(self.sampling) - len(num_drafts))
        plan = StepPlan(
            step=self.step,
            swap_out=swap_out,
            swap_in=swap_in,
            copies=copies,
            released=released,
            admitted=self.admitted,
            table_deltas=self.table_deltas,
            rows=[seq.row for seq in self.sampling] + [seq.row for seq in self.others],
            counts=self.sampling_counts + self.other_counts,
            num_sampling=len(self.sampling),
            num_drafts=num_drafts,
            num_wanted=self.most_drafts,
        )
        flight = Flight(
            self.step, self.sampling, self.others, num_drafts, self.load, self.most_drafts, self.has_prompts
        )
        return plan, flight


def _computes_prompt(seq: Sequence) -> bool:
    return seq.num_computed <= seq.num_prompt
