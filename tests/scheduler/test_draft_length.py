"""How many drafts pay, by what was measured on devices of different kinds."""

import random

import pytest

from quire.scheduler.draft_length import DraftLength


class Device:
    """Drafts are right with one probability; a step takes some time, and more for every draft. There may be none to
    verify: in steps before which, by so many as they are `made_late`, none were made, and in most steps where it is
    `rare` that any are."""

    def __init__(
        self,
        right: float,
        per_draft: float,
        seed: int = 0,
        *,
        made_late: int = 0,
        rare: float = 1.0,
        dear_from: int = 99,
    ) -> None:
        """From `dear_from` drafts on a step takes half as long again: another tile of rows."""
        self.right, self.per_draft, self.made_late, self.rare = right, per_draft, made_late, rare
        self.dear_from = dear_from
        self._random = random.Random(seed)
        self.seconds = 0.0
        self.tokens = 0
        self.chosen: list[int] = []

    def run(self, length: DraftLength, steps: int, decodes: int = 4) -> None:
        for _ in range(steps):
            drafts = length.choose(decodes)
            there = drafts if not self.made_late or any(self.chosen[-self.made_late :][:1]) else 0
            there = there if self._random.random() < self.rare else 0
            accepted = [self._accepted(there) for _ in range(decodes)]
            taken = drafts if self.made_late else there  # whoever makes them late takes time for it
            seconds = (1.0 + self.per_draft * taken) * self._random.uniform(0.98, 1.02)
            seconds *= 1.5 if taken >= self.dear_from else 1.0
            length.observe(decodes, drafts, accepted, seconds, verified=there > 0)
            self.seconds += seconds
            self.tokens += decodes + sum(accepted)
            self.chosen.append(drafts)

    def _accepted(self, drafts: int) -> int:
        count = 0
        while count < drafts and self._random.random() < self.right:
            count += 1
        return count


class GrammarDevice:
    """Six of ten tokens are forced by a grammar: they come with the token before them, in a step that drafts as well.
    Drafts of them are right, and have gained nothing; those of others are right with one probability."""

    FORCED = 0.6

    def __init__(self, right: float, per_draft: float, seed: int = 0) -> None:
        self.right, self.per_draft, self._random = right, per_draft, random.Random(seed)
        self.seconds = 0.0
        self.tokens = 0
        self.chosen: list[int] = []

    def run(self, length: DraftLength, steps: int, decodes: int) -> None:
        for _ in range(steps):
            drafts = length.choose(decodes)
            accepted = [self._accepted(drafts) for _ in range(decodes)]
            forced = sum(self._forced() for _ in range(decodes))
            seconds = (1.0 + self.per_draft * drafts) * self._random.uniform(0.98, 1.02)
            length.observe(decodes, drafts, accepted, seconds, verified=drafts > 0, forced=forced)
            self.seconds += seconds
            self.tokens += decodes + sum(accepted) + forced
            self.chosen.append(drafts)

    def _forced(self) -> int:
        count = 0
        while self._random.random() < self.FORCED:
            count += 1
        return count

    def _accepted(self, drafts: int) -> int:
        count = 0
        while count < drafts and (self._random.random() < self.FORCED or self._random.random() < self.right):
            count += 1
        return count


def test_all_drafts_where_they_are_right_and_cheap() -> None:
    device = Device(right=0.9, per_draft=0.02)
    device.run(DraftLength(4), 300)
    assert device.chosen.count(4) > 270
    assert device.tokens / device.seconds > 3.2 * 4  # tokens a second without: 4 for 4 rows


def test_larger_batches_have_none_where_a_bound_is_given() -> None:
    device = Device(right=0.9, per_draft=0.02)
    length = DraftLength(4, most_decodes=8)
    device.run(length, 100, decodes=9)
    assert set(device.chosen) == {0}
    device.run(length, 100, decodes=8)
    assert device.chosen[100:].count(4) > 80, "the bound itself is allowed, and steps beyond it have told nothing wrong"


@pytest.mark.parametrize(("right", "per_draft"), [(0.0, 0.05), (0.05, 0.2), (0.5, 1.0), (0.9, 1.1)])
@pytest.mark.parametrize("any_length", [False, True])
def test_none_where_they_do_not_pay(right: float, per_draft: float, any_length: bool) -> None:
    device, length = Device(right, per_draft), DraftLength(4, any_length=any_length)
    device.run(length, 200)  # it has to find out
    device.seconds = device.tokens = 0
    device.run(length, 2000)
    assert device.tokens / device.seconds > 0.97 * 4


@pytest.mark.parametrize("decodes", [1, 4, 16])
@pytest.mark.parametrize(("made_late", "rare"), [(True, 1.0), (False, 0.3)])
@pytest.mark.parametrize(("right", "per_draft"), [(0.0, 1.0), (0.7, 0.9), (0.2, 0.3), (0.3, 3.0)])
@pytest.mark.parametrize("any_length", [False, True])
def test_an_engine_loses_little_by_drafts_that_cost_more_than_they_bring(
    right: float, per_draft: float, made_late: bool, rare: float, decodes: int, any_length: bool
) -> None:
    device = Device(right, per_draft, made_late=made_late, rare=rare)
    length = DraftLength(4, any_length=any_length)
    device.run(length, 10, decodes)
    assert device.chosen[:3] == [0, 0, 0], "the first tokens of all come at once"
    assert device.chosen.count(0) >= (6 if any_length else 7), "one trial, and one step with fewer drafts"
    device.seconds = device.tokens = 0
    device.run(length, 4000, decodes)
    assert device.tokens / device.seconds > 0.985 * decodes


def test_drafts_that_are_made_a_step_late_are_tried_long_enough_to_be_verified() -> None:
    device, length = Device(right=0.0, per_draft=0.2, made_late=1), DraftLength(4)
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


@pytest.mark.parametrize("dear_from", [3, 4, 5])
def test_as_many_as_are_cheap_where_any_length_will_do(dear_from: int) -> None:
    device, length = Device(right=0.85, per_draft=0.1, dear_from=dear_from), DraftLength(4, any_length=True)
    device.run(length, 400)
    assert max(device.chosen[300:], key=device.chosen[300:].count) == dear_from - 1


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


@pytest.mark.parametrize("decodes", [1, 8])
@pytest.mark.parametrize("any_length", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_drafts_of_what_a_grammar_forces_gain_nothing(seed: int, any_length: bool, decodes: int) -> None:
    device, length = GrammarDevice(right=0.05, per_draft=0.35, seed=seed), DraftLength(4, any_length=any_length)
    device.run(length, 200, decodes)
    device.seconds = device.tokens = 0
    device.run(length, 3000, decodes)
    assert device.tokens / device.seconds > 0.95 * decodes / (1 - device.FORCED)


@pytest.mark.parametrize("decodes", [1, 8])
def test_drafts_of_what_a_grammar_leaves_open_gain(decodes: int) -> None:
    device, length = GrammarDevice(right=0.9, per_draft=0.05), DraftLength(4)
    device.run(length, 1000, decodes)
    assert device.chosen[200:].count(4) > 700


def test_a_model_takes_its_time_for_drafts_that_are_never_verified() -> None:
    length, chosen = DraftLength(4, by_a_model=True), list[int]()
    for _ in range(600):
        drafts = length.choose(1)
        length.observe(1, drafts, [0], 1.0 + 0.3 * drafts, verified=False)
        chosen.append(drafts)
    assert chosen[-200:].count(0) > 190


@pytest.mark.parametrize("seed", range(4))
def test_what_becomes_right_later_is_found(seed: int) -> None:
    """Where one draft pays best, more of them are not forgotten: another load may have them right."""
    length = DraftLength(4, any_length=True)
    device = Device(right=0.45, per_draft=0.3, seed=seed)
    device.run(length, 1500)
    assert device.chosen[-500:].count(4) < 50
    device.right = 0.95
    device.run(length, 1200)
    device.seconds = device.tokens = 0
    device.run(length, 2000)
    all_of_them = (1 + sum(0.95**place for place in range(1, 5))) / (1 + 4 * 0.3)
    assert device.tokens / device.seconds > 0.9 * 4 * all_of_them


@pytest.mark.parametrize("stages", [2, 4])
def test_in_a_pipeline_drafts_are_tried_until_some_are_verified(stages: int) -> None:
    device = Device(right=0.9, per_draft=0.02, made_late=stages)
    device.run(DraftLength(4, num_stages=stages), 400)
    assert device.chosen.count(4) > 340


@pytest.mark.parametrize("stages", [2, 4])
def test_in_a_pipeline_drafts_that_are_wrong_cost_little(stages: int) -> None:
    device = Device(right=0.05, per_draft=0.3, made_late=stages)
    device.run(DraftLength(4, num_stages=stages), 4000)
    assert device.seconds < 1.03 * 4000
