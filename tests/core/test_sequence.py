"""How much of a sequence counts as computed, and that nobody but it writes that down."""

import ast
from pathlib import Path

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import Sequence

ROOT = Path(__file__).parents[2] / "quire"


def writes(source: str) -> list[int]:
    """Lines that store to an attribute `num_computed`."""
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    found = [node for node in attributes if node.attr == "num_computed" and not isinstance(node.ctx, ast.Load)]
    return sorted(node.lineno for node in found)


def test_every_way_to_write_is_seen() -> None:
    assert writes("seq.num_computed = 1\nseq.num_computed -= 1\na.num_slots = seq.num_computed = 0") == [1, 2, 3]
    assert writes("a, seq.num_computed = 1, 2\nfor seq.num_computed in x: pass\ndel seq.num_computed") == [1, 2, 3]
    assert writes("a = seq.num_computed\nnum_computed = 1\nf(num_computed=2)") == []


def test_only_a_sequence_writes_how_much_of_it_is_computed() -> None:
    found = {path.relative_to(ROOT).as_posix(): writes(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}
    assert [name for name, lines in found.items() if lines] == ["core/sequence.py"]


def test_what_counts_as_computed() -> None:
    seq = Sequence(0, Request(id="a", prompt=Prompt(tuple(range(9))), params=SamplingParams()), 0, max_total=20)
    assert seq.num_computed == 0
    seq.find_cached(4)
    seq.grant(9)
    assert seq.num_computed == 9
    seq.num_pending = 1
    seq.grant_drafts(3)
    assert (seq.num_computed, seq.num_tokens, seq.fewest_tokens) == (12, 13, 10)
    seq.verified(3, 1)
    assert (seq.num_computed, seq.num_tokens, seq.fewest_tokens) == (10, 11, 11)
    seq.num_slots = 16
    seq.lose_kv()
    assert (seq.num_computed, seq.num_slots) == (0, 0)
    seq.fork_at(8)
    assert seq.num_computed == 8
