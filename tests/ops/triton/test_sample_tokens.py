"""The kernels' draw against the reference: the same noise, the same filters, for rows of every kind at once."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from quire.ops.adjustments import Adjusted
from quire.ops.reference.sample_tokens import sample_tokens as reference
from quire.ops.reference.top_k_top_p_min_p import top_k_top_p_min_p
from tests.ops.triton.device import DEVICE, needs_triton
from tests.rarely import rarely

# The interpreter computes with numpy, which warns where kernels mean to reach infinity.
pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

Filters = tuple[Tensor | None, Tensor | None, Tensor | None]


def sources(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Seeds, streams and positions of rows, the first two as columns of a table."""
    seeds = torch.randint(-(2**62), 2**62, (rows, 2))
    seeds[:, 1] = torch.arange(rows) % 3
    seeds = seeds.to(DEVICE)
    return seeds[:, 0], seeds[:, 1], torch.randint(0, 100_000, (rows,)).to(DEVICE)


def random_filters(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """As columns of tables; about a third of the rows go without each."""
    numbers = torch.rand(rows, 2).clamp(min=0.01)
    numbers[:, 1] *= 0.3
    numbers[torch.rand(rows) < 0.3, 0] = 1.0
    numbers[torch.rand(rows) < 0.3, 1] = 0.0
    top_k = torch.randint(-5, 60, (rows, 2))
    top_k[torch.rand(rows) < 0.2] = 0
    numbers, top_k = numbers.to(DEVICE), top_k.to(DEVICE)
    return top_k[:, 0], numbers[:, 0], numbers[:, 1]


def some_of(filters: tuple[Tensor, Tensor, Tensor], names: str) -> Filters:
    top_k, top_p, min_p = filters
    return (top_k if "k" in names else None, top_p if "p" in names else None, min_p if "m" in names else None)


def check(logits: Tensor, temperature: Tensor, filters: Filters = (None, None, None)) -> Tensor:
    from quire.ops.triton.sample_tokens import sample_tokens

    source = sources(len(logits))
    found, none = sample_tokens(logits, temperature, *source, *filters)
    assert found.dtype == torch.int64
    wanted, none_wanted = reference(logits, temperature, *source, *filters)
    assert torch.equal(found, wanted)
    assert torch.equal(none, none_wanted)
    return found


def temperatures(rows: int) -> Tensor:
    return torch.tensor([0.3, 1.0, 0.0, 2.5]).repeat(rows)[:rows].to(DEVICE)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 64), (3, 1024), (12, 1025), (2, 5003), (0, 50)])
def test_the_same_tokens_as_the_reference(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    check(torch.randn(shape, device=DEVICE) * 4, temperatures(shape[0]))


def test_noise_alone_decides() -> None:
    """Every word of the noise counts, and so do streams and high positions."""
    torch.manual_seed(2)
    tokens = check(torch.full((40, 2000), 3.0, device=DEVICE), torch.ones(40, device=DEVICE))
    assert len(set(tokens.tolist())) > 30


@pytest.mark.parametrize("names", rarely(["k", "m", "p", "kp", "km", "pm", "kpm"], every=2))
@pytest.mark.parametrize("shape", [(1, 5), (6, 1100)])
def test_filters(names: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(3)
    filters = some_of(random_filters(shape[0]), names)
    check(torch.randn(shape, device=DEVICE) * 4, temperatures(shape[0]), filters)


def peaks_and_masses(logits: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    from quire.ops.triton.argmax import best_of_rows

    peaks, _, _, masses = best_of_rows(logits, None, temperature)
    return peaks, masses


@pytest.mark.parametrize(
    ("names", "spread", "on_a_grid", "sample"),
    rarely(product(["k", "p", "kpm"], [0.01, 4.0, 40.0], [False, True], [16, 2048]), every=7),
)
def test_what_is_kept(names: str, spread: float, on_a_grid: bool, sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the reference's tokens, but for those too far away ever to be drawn. On a grid, thresholds meet ties; and
    whatever a sample says of the row, or misses, changes nothing."""
    from quire.ops.triton.thresholds import FAR, Reaches

    monkeypatch.setattr("quire.ops.triton.thresholds._SAMPLE", sample)
    torch.manual_seed(4)
    logits = torch.randn(8, 1100, device=DEVICE) * spread
    if on_a_grid:
        logits = (logits * 4).round() / 4
    temperature = torch.tensor([0.25, 0.7, 1.0, 3.0] * 2, device=DEVICE)
    top_k, top_p, min_p = some_of(random_filters(8), names)
    scores = (logits - logits.amax(dim=-1, keepdim=True)) / temperature[:, None]
    kept = top_k_top_p_min_p(scores, top_k, top_p, min_p) > -math.inf
    reaches = Reaches(logits, None, *peaks_and_masses(logits, temperature), temperature, top_k, top_p, min_p)
    assert bool((-scores <= reaches.values[:, None])[kept & (scores >= -FAR)].all())
    assert bool(kept[-scores <= reaches.sure[:, None].clamp(max=reaches.values[:, None])].all())
    reaches.make_exact(torch.ones(8, dtype=torch.bool, device=DEVICE))
    assert torch.equal(-scores <= reaches.values[:, None], kept & (scores >= -FAR))


def test_rows_without_filters_beside_those_with() -> None:
    from quire.ops.triton.thresholds import FAR, Reaches

    torch.manual_seed(5)
    logits = torch.randn(4, 200, device=DEVICE)
    temperature = torch.tensor([1.0, 0.0, 1.0, 1.0], device=DEVICE)
    top_k, top_p = torch.tensor([0, 5, 1, 0], device=DEVICE), torch.tensor([1.0, 0.5, 0.5, 1e-9], device=DEVICE)
    reaches = Reaches(logits, None, *peaks_and_masses(logits, temperature), temperature, top_k, top_p, None)
    reaches.make_exact(torch.ones(4, dtype=torch.bool, device=DEVICE))
    assert reaches.values.tolist() == [FAR, 0.0, 0.0, 0.0]
    check(logits, temperature, (top_k, top_p, None))


@pytest.mark.parametrize("top_p", [0.3, 0.999999])
def test_a_flat_row_is_searched_as_a_whole(top_p: float) -> None:
    """The list of a row holds all its columns, and more than one part writes it."""
    torch.manual_seed(6)
    logits = torch.rand(3, 2500, device=DEVICE) * 0.01
    check(logits, torch.ones(3, device=DEVICE), (None, torch.full((3,), top_p, device=DEVICE), None))
    check(logits, torch.ones(3, device=DEVICE), (torch.full((3,), 2222, device=DEVICE), None, None))


def test_more_than_there_are() -> None:
    torch.manual_seed(7)
    check(
        torch.randn(3, 90, device=DEVICE),
        torch.ones(3, device=DEVICE),
        (torch.full((3,), 91, device=DEVICE), None, None),
    )


@pytest.mark.parametrize("temperature", [1e-4, 1e-12, 1e-38])
@pytest.mark.parametrize("names", ["", "kpm"])
def test_tiny_temperatures_take_the_most_likely(temperature: float, names: str) -> None:
    torch.manual_seed(8)
    logits = torch.randn(4, 301, device=DEVICE) * 100
    tokens = check(logits, torch.full((4,), temperature, device=DEVICE), some_of(random_filters(4), names))
    assert torch.equal(tokens, logits.argmax(dim=-1))


def test_greedy_rows_take_the_first_of_the_most_likely() -> None:
    torch.manual_seed(9)
    logits = torch.randint(0, 3, (6, 2200), device=DEVICE).float()
    tokens = check(logits, torch.zeros(6, device=DEVICE))
    assert torch.equal(tokens, logits.argmax(dim=-1))


@pytest.mark.parametrize("names", ["", "k", "kpm"])
def test_what_is_hidden_is_never_drawn(names: str) -> None:
    torch.manual_seed(10)
    logits = torch.randn(8, 300, device=DEVICE)
    logits[:, ::2] = -math.inf
    filters = random_filters(8)
    filters[0][:] = 250  # more than are left
    tokens = check(logits, torch.full((8,), 5.0, device=DEVICE), some_of(filters, names))
    assert bool((tokens % 2 == 1).all())


@pytest.mark.parametrize("names", ["", "kpm"])
def test_rows_without_a_token_are_told_and_disturb_nobody(names: str) -> None:
    from quire.ops.triton.sample_tokens import sample_tokens

    torch.manual_seed(11)
    logits = torch.randn(5, 1500, device=DEVICE)
    filters, source = some_of(random_filters(5), names), sources(5)
    temperature = torch.ones(5, device=DEVICE)
    wanted, _ = reference(logits, temperature, *source, *filters)
    logits[0] = -math.inf
    logits[1, 700] = math.inf
    logits[2, 1400] = math.nan
    logits[3] = math.nan
    found, none = sample_tokens(logits, temperature, *source, *filters)
    assert none.tolist() == [True] * 4 + [False]
    assert found.tolist() == [0] * 4 + [int(wanted[4])]


@pytest.mark.parametrize("names", ["", "kp"])
def test_shares_of_programs_change_nothing(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ with the number of rows, and a row draws the same in any batch."""
    torch.manual_seed(12)
    logits = torch.randn(4, 3500, device=DEVICE)
    filters = some_of(random_filters(4), names)
    for programs in (1, 9, 1000):
        monkeypatch.setattr("quire.ops.triton.thresholds._PROGRAMS", programs)
        check(logits, temperatures(4), filters)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_of_another_type_and_rows_of_a_wider_tensor(dtype: torch.dtype) -> None:
    from quire.ops.triton.sample_tokens import sample_tokens

    torch.manual_seed(13)
    logits = (torch.randn(6, 900, device=DEVICE) * 4).to(dtype)[::2, 50:850]
    filters, source = some_of(random_filters(3), "kpm"), sources(3)
    temperature = torch.ones(3, device=DEVICE)
    found, _ = sample_tokens(logits, temperature, *source, *filters, width=100)
    assert torch.equal(found, reference(logits.float(), temperature, *source, *filters)[0])


@pytest.mark.parametrize("names", ["", "kpm"])
def test_rows_that_were_adjusted_beside_those_that_were_not(names: str) -> None:
    from quire.ops.triton.sample_tokens import sample_tokens

    torch.manual_seed(9)
    logits, values = torch.randn(2, 8, 5000, device=DEVICE) * 3
    which = torch.arange(8, device=DEVICE) % 3 == 0
    values[3, 77] = math.nan
    values[6] = -math.inf
    values[1] = math.nan  # nobody may look at it
    source, filters = sources(8), some_of(random_filters(8), names)
    found = sample_tokens(logits, temperatures(8), *source, *filters, adjusted=Adjusted(values, which))
    both = torch.where(which[:, None], values, logits)
    for one, other in zip(found, reference(both, temperatures(8), *source, *filters), strict=True):
        assert torch.equal(one, other)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="a compiled kernel keeps its constants")
@pytest.mark.parametrize("names", ["", "kpm"])
def test_a_row_in_which_nothing_reached_what_was_hoped_for_is_drawn_again(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.ops.triton.sample_tokens._MOST", 0.0)
    torch.manual_seed(14)
    check(torch.randn(8, 5000, device=DEVICE) * 4, temperatures(8), some_of(random_filters(8), names))
