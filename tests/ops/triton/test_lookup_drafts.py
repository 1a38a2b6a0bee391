"""What followed before: the definition by example, and kernel and CPU code against the definition."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

from quire.ops.reference.lookup_drafts import NOTHING
from quire.ops.reference.lookup_drafts import lookup_drafts as reference
from quire.ops.step_tensors import RowStates
from tests.ops.triton.device import DEVICE, needs_triton
from tests.rarely import rarely

Lookup = Callable[..., Any]


@pytest.fixture(params=["cpu", pytest.param("triton", marks=needs_triton)])
def lookup(request: pytest.FixtureRequest) -> Lookup:
    found: Lookup = import_module(f"quire.ops.{request.param}.lookup_drafts").lookup_drafts
    return found


def proposed(known: list[int], fewest: int = 1, most: int = 3, count: int = 3, room: int = 8) -> list[int]:
    tokens = torch.zeros((1, len(known) + room), dtype=torch.int32)
    tokens[0, : len(known)] = torch.tensor(known)
    ready = torch.tensor([99])
    states = RowStates(tokens, torch.tensor([len(known) - 1]), torch.zeros(1), [])
    reference(states, torch.tensor([0]), ready, torch.tensor([True]), fewest, most, count)
    found: list[int] = tokens[0, len(known) : len(known) + int(ready)].tolist()
    return found


def test_what_followed_is_proposed() -> None:
    assert proposed([1, 2, 3, 4, 9, 2]) == [3, 4, 9]
    assert proposed([1, 2, 3, 4, 9, 8]) == []
    assert proposed([7]) == []


def test_more_that_agrees_is_better_and_then_the_latest() -> None:
    assert proposed([5, 1, 2, 6, 8, 2, 7, 9, 1, 2]) == [6, 8, 2]
    assert proposed([1, 6, 1, 7, 1]) == [7, 1, 7], "it goes round where it runs into the end"
    assert proposed([4, 5, 6, 1, 9, 5, 6, 2, 4, 5, 6], most=2) == [2, 4, 5], "what is beyond `most` does not count"


def test_too_few_that_agree_are_none() -> None:
    assert proposed([1, 2, 3, 9, 2], fewest=2) == []
    assert proposed([1, 2, 3, 1, 2], fewest=2, most=2) == [3, 1, 2]
    assert proposed([1, 2, 1, 2], fewest=3) == []


def test_a_row_that_repeats_itself_goes_on() -> None:
    assert proposed([3, 3, 3], count=4) == [3, 3, 3, 3]
    assert proposed([1, 2, 1, 2], count=5) == [1, 2, 1, 2, 1]


def recent_texts(vocabulary: int) -> torch.Tensor:
    """Each begins with a place without a token, and ends somewhere."""
    texts = torch.randint(0, vocabulary, (5, 30), dtype=torch.int32)
    texts[:, 0] = NOTHING
    for number, length in enumerate((30, 12, 2, 1, 21)):
        texts[number, length:] = NOTHING
    return texts


def test_recent_texts_win_with_more_that_agrees() -> None:
    def found(known: list[int], texts: list[list[int]], most: int = 6) -> list[int]:
        tokens = torch.zeros((1, len(known) + 8), dtype=torch.int32)
        tokens[0, : len(known)] = torch.tensor(known)
        ready = torch.tensor([0])
        states = RowStates(tokens, torch.tensor([len(known) - 1]), torch.zeros(1), [])
        recent = torch.tensor(texts, dtype=torch.int32)
        reference(states, torch.tensor([0]), ready, torch.tensor([True]), 1, most, 3, recent)
        drafts: list[int] = tokens[0, len(known) : len(known) + int(ready)].tolist()
        return drafts

    assert found([4, 5, 9, 5], [[-1, 7, 4, 5, 6, 6, 6]]) == [9, 5, 9], "as many agree in its own"
    assert found([4, 5, 9, 4, 7, 5], [[-1, 4, 7, 5, 8, -1, -1]]) == [8], "it ends with the text"
    assert found([3, 4, 7, 5], [[-1, 4, 7, 5, -1, -1], [-1, 2, 5, 6, 6, 6]]) == [6, 6, 6], "something must follow"
    assert found([1, 2], [[-1, 1, 2, 3, 3, 3], [-1, 1, 2, 4, 4, 4]]) == [4, 4, 4], "the last of equals"


@pytest.mark.parametrize("vocabulary", rarely([2, 4, 9], every=2))
@pytest.mark.parametrize("looks_elsewhere", [False, True])
@pytest.mark.parametrize(("fewest", "most", "count"), [(1, 1, 1), (1, 4, 3), (2, 5, 4), (3, 3, 8), (1, 12, 5)])
def test_it_is_as_defined(
    vocabulary: int, fewest: int, most: int, count: int, looks_elsewhere: bool, lookup: Lookup
) -> None:
    device = "cpu" if ".cpu." in lookup.__module__ else DEVICE
    torch.manual_seed(vocabulary)
    rows_there, width = 12, 60
    tokens = torch.randint(0, vocabulary, (rows_there, width), dtype=torch.int32)
    computed = torch.randint(0, width - count - 1, (rows_there,))
    computed[0], computed[1], computed[2] = 0, width - 1, 1  # nothing before; no room behind
    may = torch.rand(rows_there) < 0.8
    rows = torch.randperm(rows_there)[:9]
    texts = recent_texts(vocabulary) if looks_elsewhere else None
    results = []
    for function, there in ((reference, "cpu"), (lookup, device)):
        states = RowStates(tokens.clone().to(there), computed.clone().to(there), torch.zeros(1), [])
        ready = torch.full((rows_there,), -1).to(there)
        given = None if texts is None else texts.to(there)
        function(states, rows.to(there), ready, may.to(there), fewest, most, count, given)
        results.append((states.tokens.cpu(), ready.cpu()))
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[0][0], results[1][0])
    assert len(set(results[0][1].tolist())) > 1


def test_long_rows(lookup: Lookup) -> None:
    """Longer than a kernel looks at in one go."""
    device = "cpu" if ".cpu." in lookup.__module__ else DEVICE
    tokens = torch.arange(9100, dtype=torch.int32)[None].repeat(2, 1).to(device)
    tokens[0, 9001:9004] = torch.tensor([4700, 4701, 4702])
    tokens[1, 9002:9004] = torch.tensor([11, 12])
    states = RowStates(tokens, torch.tensor([9003, 9003], device=device), torch.zeros(1), [])
    ready = torch.zeros(2, dtype=torch.int64, device=device)
    may = torch.ones(2, dtype=torch.bool, device=device)
    lookup(states, torch.tensor([1, 0], device=device), ready, may, 2, 5, 4)
    assert ready.tolist() == [4, 4]
    assert tokens[:, 9004:9008].tolist() == [[4703, 4704, 4705, 4706], [13, 14, 15, 16]]
