"""A kernel that does not fit with all its stages runs with as many as it can have, and is not tried in vain again."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ops.triton.device import needs_triton

pytestmark = needs_triton


class Card:
    """A kernel, on a card with shared memory for so many stages of a tile of 32."""

    def __init__(self, most_stages: int) -> None:
        self.most_stages = most_stages
        self.tried: list[int] = []
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        from triton.runtime.errors import OutOfResources

        def launch(*arguments: Any, tile: int, num_stages: int) -> None:
            self.tried.append(num_stages)
            if tile * num_stages > 32 * self.most_stages:
                raise OutOfResources(tile * num_stages, 32 * self.most_stages, "shared memory")
            self.launched.append((grid, arguments, tile, num_stages))

        return launch


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.ops.triton import staged

    monkeypatch.setattr(staged, "_possible", {})


def launch(kernel: Card, tile: int = 32, stages: int = 4) -> None:
    from quire.ops.triton.staged import launch_staged

    launch_staged(kernel, (3, 2), ("x", 7), {"tile": tile, "num_stages": stages}, "num_stages")


def test_what_fits_is_launched_as_it_was_asked_for() -> None:
    card = Card(most_stages=4)
    launch(card)
    assert card.launched == [((3, 2), ("x", 7), 32, 4)]
    assert card.tried == [4]


def test_what_does_not_fit_has_fewer_stages_and_that_is_remembered() -> None:
    card = Card(most_stages=2)
    launch(card)
    launch(card)
    assert card.tried == [4, 3, 2, 2]
    assert [stages for *_, stages in card.launched] == [2, 2]
    launch(card, tile=16)  # another kernel, which fits
    launch(card)
    assert card.tried == [4, 3, 2, 2, 4, 2]


def test_what_does_not_fit_at_all_is_told() -> None:
    from triton.runtime.errors import OutOfResources

    card = Card(most_stages=0)
    with pytest.raises(OutOfResources, match="shared memory"):
        launch(card)
    assert card.tried == [4, 3, 2, 1]
