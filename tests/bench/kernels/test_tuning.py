"""Which choice of a kernel is taken: never one that is wrong or cannot run, and of the rest the fastest."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from quire.bench.kernels import tuning
from quire.bench.kernels.tuning import fastest_choice
from quire.ops.triton.compiler import CANNOT_RUN
from quire.ops.triton.skinny_gemm_choices import Choice

SLOW, FAST, WRONG, BROKEN = (Choice("cuda", block, 64, 1, 4, 1) for block in (1, 2, 4, 8))
EXPECTED = torch.ones(2, 3)
SECONDS = {SLOW: 2.0, FAST: 1.0, WRONG: 0.1, BROKEN: 0.1}
NEVER, AT_ONCE = float("inf"), 0.0


def products(choice: Choice) -> Sequence[Callable[[], Tensor]]:
    def product() -> Tensor:
        if choice is BROKEN:
            raise CANNOT_RUN[0]("no room\nfor it")
        return EXPECTED * (1.5 if choice is WRONG else 1.001)

    product.choice = choice  # type: ignore[attr-defined]
    return [product]


@pytest.fixture(autouse=True)
def _known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "time_calls", lambda calls: (SECONDS[calls[0].choice],) * 3)


def test_the_fastest_that_is_right_is_taken_and_the_others_are_named() -> None:
    said: list[str] = []
    found = fastest_choice([BROKEN, SLOW, WRONG, FAST], products, EXPECTED, "3 rows", NEVER, said.append)
    assert (found.choice, found.times, found.tried) == (FAST, (1.0, 1.0, 1.0), 4)
    assert [line.partition(" (")[0] for line in said] == ["cannot run", "wrong by 5.0e-01: 3 rows,"]
    assert said[0].endswith("no room")


def test_when_time_is_up_the_first_is_all_there_is() -> None:
    assert fastest_choice([SLOW, FAST], products, EXPECTED, "", AT_ONCE, print).choice == SLOW
    assert fastest_choice([BROKEN, FAST], products, EXPECTED, "", AT_ONCE, print).choice is None
