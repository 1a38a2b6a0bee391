"""How many drafts pay, by what was measured on devices of different kinds."""

import random

import pytest

from quire.scheduler.draft_length import DraftLength


class Device:
    """Drafts are right with one probability; a step takes some time, and more for every draft."""

    def __init__(self, right: float, per_draft: float, seed: int = 0) -> None:
        self.right, self.per_draft = right, per_draft
        self._random = random.Random(seed)
        self.seconds = 0.0
        self.tokens = 0
        self.chosen: list[int] = []

    def run(self, length: DraftLength, steps: int, decodes: int = 4) -> None:
        for _ in range(steps):
            drafts = length.choose(decodes)
            accepted = [self._accepted(drafts) for _ in range(decodes)]
            seconds = (1.0 + self.per_draft * drafts) * self._random.uniform(0.98, 1.02)
            length.observe(decodes, drafts, accepted, seconds)
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


def test_few_where_only_the_first_pays() -> None:
    device, length = Device(right=0.5, per_draft=0.3), DraftLength(2)
    device.run(length, 400)
    assert max(device.chosen[300:], key=device.chosen[300:].count) == 1


def test_it_begins_again_when_drafts_are_right_again() -> None:
    device, length = Device(right=0.0, per_draft=0.1), DraftLength(4)
    device.run(length, 500)
    assert device.chosen[-20:].count(0) >= 19
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
