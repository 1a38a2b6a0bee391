"""Drafts that are looked up without torch are those that are looked up with it."""

from random import Random

import pytest
import torch

from quire.config.resolved import Resolved
from quire.config.speculation import Speculation
from quire.core.plan import Admission
from quire.core.sampling_params import SamplingParams
from quire.ops.step_tensors import RowStates
from quire.sampling.mode import sampling_mode
from quire.worker.core_memory import CoreMemory
from quire.worker.speculative.core_drafting import CoreDrafting
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.suffix import SuffixProposer
from tests.ops.cpu.machines import needs_core
from tests.tiny_model import make_text_model
from tests.worker.test_cpu_core import resolved_for

pytestmark = needs_core
MODE = sampling_mode([], 9)
ASKED = Speculation("suffix", suffix_decoding_max_cached_requests=3, suffix_decoding_max_tree_depth=6)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Resolved:
    path = make_text_model(tmp_path_factory.mktemp("model")).path
    return resolved_for(path, max_num_seqs=3, max_num_batched_tokens=16, block_size=4, max_model_len=64)


def of_torch(memory: CoreMemory) -> tuple[SuffixProposer, RowStates, DraftRows]:
    """Over memory of its own."""
    states = RowStates(
        tokens=torch.from_numpy(memory.tokens),
        num_computed=torch.from_numpy(memory.computed),
        lengths_for_angles=torch.from_numpy(memory.lengths_for_angles),
        tables=[torch.from_numpy(table) for table in memory.tables],
    )
    drafts = DraftRows(torch.from_numpy(memory.ready), torch.from_numpy(memory.may_draft))
    return SuffixProposer(ASKED, states, drafts), states, drafts


def newcomer(row: int, random: Random) -> Admission:
    tokens = [random.randrange(4) for _ in range(random.randint(1, 9))]
    return Admission(
        row=row,
        request_id=str(row),
        index=0,
        tokens=tokens,
        num_prompt=len(tokens),
        num_computed=len(tokens) - 1,
        tables=[[0]],
        params=SamplingParams(),
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_same_is_proposed_with_torch_and_without(seed: int, settings: Resolved) -> None:
    """Sequences of few words come, speak and go; at some time torch takes over what was said."""
    random = Random(seed)
    own, other = (CoreMemory(settings.kv, settings.limits) for _ in range(2))
    core, (proposer, _, drafts) = CoreDrafting(ASKED, own), of_torch(other)
    live: set[int] = set()
    proposed = 0
    for turn in range(150):
        row = random.randrange(3)
        if row not in live:
            admission = newcomer(row, random)
            for memory in (own, other):
                memory.admit(admission)
            core.admit(admission)
            proposer.admit(admission)
            drafts.admit(admission)
            live.add(row)
        elif random.random() < 0.08 or own.computed[row] > 50:
            core.release(row)
            proposer.release(row)
            live.remove(row)
            continue
        rows = sorted(live)
        for each in rows:
            word = random.choice([0, 1, 2, 3, *own.tokens[each, : own.computed[each]][-3:].tolist()])
            for memory in (own, other):
                memory.computed[each] += 1
                memory.tokens[each, memory.computed[each]] = word
        if turn == 100:  # a worker without torch makes way for one with it
            proposer = of_torch(other)[0]
            assert own.answers is not None
            proposer.go_on_from(own.answers)
            for each in rows:
                proposer.admit(own.admitted[each])
        counts = core.propose(torch.tensor(rows).numpy(), 4)
        proposer.propose(torch.tensor(rows), 4, MODE)
        assert counts == other.ready[rows].tolist()
        for each, count in zip(rows, counts, strict=True):
            begin = int(own.computed[each]) + 1
            assert (
                own.tokens[each, begin : begin + count].tolist() == other.tokens[each, begin : begin + count].tolist()
            )
            proposed += count
    assert proposed > 100


def test_nothing_is_looked_up_where_nothing_is_wanted(settings: Resolved) -> None:
    memory = CoreMemory(settings.kv, settings.limits)
    drafting = CoreDrafting(Speculation("ngram"), memory)
    admission = newcomer(0, Random(0))
    memory.admit(admission)
    drafting.admit(admission)
    memory.tokens[0, :8] = [1, 2, 3, 4, 1, 2, 3, 0]
    memory.computed[0] = 6
    rows = torch.tensor([0]).numpy()
    assert drafting.propose(rows, 1) == [4]
    assert drafting.propose(rows, 0) == [0]
    assert memory.ready[0] == 0


def test_a_token_of_the_warm_up_is_no_answer(settings: Resolved) -> None:
    memory = CoreMemory(settings.kv, settings.limits)
    drafting = CoreDrafting(ASKED, memory)
    drafting.admit(newcomer(0, Random(1)))
    drafting.reset()
    drafting.release(0)
    assert memory.answers is not None
    assert memory.answers.texts == []
