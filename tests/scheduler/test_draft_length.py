"""How many drafts pay, by what was measured on devices of different kinds."""

import random

import pytest

from quire.scheduler.draft_length import DraftLength


class Device:
    """Drafts are right with one probability; a step takes some time, and more for every draft. There may be none to
    verify: in steps that follow one for which none were made, and in most steps where it is `rare` that any are."""

    def __init__(
        self, right: float, per_draft: float, seed: int = 0, *, made_late: bool = False, rare: float = 1.0
    ) -> None:
        self.right, self.per_draft, self.made_late, self.rare = right, per_draft, made_late, rare
        self._random = random.Random(seed)
        self.seconds = 0.0
        self.tokens = 0
        self.chosen: list[int] = []

    def run(self, length: DraftLength, steps: int, decodes: int = 4) -> None:
        for _ in range(steps):
            drafts = length.choose(decodes)
            there = drafts if (self.chosen and self.chosen[-1]) or not self.made_late else 0
            there = there if self._random.random() < self.rare else 0
            accepted = [self._accepted(there) for _ in range(decodes)]
            taken = drafts if self.made_late else there  # whoever makes them late takes time for it
            seconds = (1.0 + self.per_draft * taken) * self._random.uniform(0.98, 1.02)
            length.observe(decodes, drafts, accepted, seconds, verified=there > 0)
            self.seconds += seconds
            self.tokens += decodes + sum(accepted)
            self.chosen.append(drafts)

    def _accepted(self, drafts: int) -> int:
        count = 0
        while count < drafts and self._random.random() < self.right:
            count += 1
        return count


def test_all_drafts_where_they_are_right_and_cheap() -> None:
    device = Device(right=0.9, per_draft=0.02)
    device.run(DraftLength(4), 300)
    assert device.chosen.count(4) > 270
    assert device.tokens / device.seconds > 3.2 * 4  # tokens a second without: 4 for 4 rows


@pytest.mark.parametrize(("right", "per_draft"), [(0.0, 0.05), (0.05, 0.2), (0.5, 1.0), (0.9, 1.1)])
def test_none_where_they_do_not_pay(right: float, per_draft: float) -> None:
    device, length = Device(right, per_draft), DraftLength(4)
    device.run(length, 200)  # it has to find out
    device.seconds = device.tokens = 0
    device.run(length, 2000)
    assert device.tokens / device.seconds > 0.97 * 4


@pytest.mark.parametrize("decodes", [1, 4, 16])
@pytest.mark.parametrize(("made_late", "rare"), [(True, 1.0), (False, 0.3)])
@pytest.mark.parametrize(("right", "per_draft"), [(0.0, 1.0), (0.7, 0.9), (0.2, 0.3), (0.3, 3.0)])
def test_an_engine_loses_little_by_drafts_that_cost_more_than_they_bring(
    right: float, per_draft: float, made_late: bool, rare: float, decodes: int
) -> None:
    device, length = Device(right, per_draft, made_late=made_late, rare=rare), DraftLength(4)
    device.run(length, 10, decodes)
    assert device.chosen[:3] == [0, 0, 0], "the first tokens of all come at once"
    assert device.chosen.count(0) >= 7, "one trial"
    device.seconds = device.tokens = 0
    device.run(length, 4000, decodes)
    assert device.tokens / device.seconds > 0.985 * decodes


def test_drafts_that_are_made_a_step_late_are_tried_long_enough_to_be_verified() -> None:
    device, length = Device(right=0.0, per_draft=0.2, made_late=True), DraftLength(4)
    device.run(length, 800)
    assert device.chosen[-20:].count(4) < 5
    device.right = 0.95
    device.run(length, 800)
    assert device.chosen[-20:].count(4) >= 19


def test_drafts_that_are_rarely_there_are_judged_where_they_are() -> None:
    """One step in ten has something to verify, and that pays."""
    device, length = Device(right=0.9, per_draft=0.1, rare=0.1), DraftLength(4)
    device.run(length, 1500)
    assert device.chosen[-200:].count(0) < 10


def test_few_where_only_the_first_pays() -> None:
    device, length = Device(right=0.5, per_draft=0.3), DraftLength(2)
    device.run(length, 400)
    assert max(device.chosen[300:], key=device.chosen[300:].count) == 1


def test_it_begins_again_when_drafts_are_right_again() -> None:
    device, length = Device(right=0.0, per_draft=0.1), DraftLength(4)
    device.run(length, 500)
    assert device.chosen[-20:].count(0) >= 17, "but for a trial"
    device.right = 0.95
    device.run(length, 1200)
    assert device.chosen[-20:].count(4) >= 19


def test_batches_of_other_sizes_have_figures_of_their_own() -> None:
    length = DraftLength(4)
    Device(right=0.6, per_draft=0.02).run(length, 200, decodes=1)
    Device(right=0.6, per_draft=0.9).run(length, 200, decodes=64)
    assert length.choose(1) == 4
    assert length.choose(64) == 0


def test_nothing_is_verified_where_nothing_decodes() -> None:
    assert DraftLength(4).choose(0) == 0
