"""OomBackoff: how many tokens a step may have on a device that has run out of memory.

A step that did not fit is rolled back and tried again with half its tokens; as running sequences take one each, that
also bounds how many of them there are. Steps that go well win the room back, more slowly each time it proves too much.
"""

from quire.scheduler.base import StepScheduler

FIRST_PATIENCE = 64
"""Steps that must go well before the room is doubled."""
MOST_PATIENCE = 4096


class OomBackoff:
    """The token budget of one scheduler. The scheduler's own limit as long as memory suffices."""

    def __init__(self, scheduler: StepScheduler) -> None:
        self._scheduler = scheduler
        self._patience = FIRST_PATIENCE
        self._went_well = 0
        """Steps since memory last ran out, or since the room last grew."""
        self._is_retry = False
        """Whether no step has gone well since memory last ran out."""

    @property
    def num_tokens(self) -> int:
        return self._scheduler.token_budget

    def ran_out(self, num_tokens: int, num_requests: int) -> bool:
        """A step did not fit and was rolled back; the next ones are smaller.

        Returns whether that is not enough and a request is to blame: a smaller step did not fit either, or none could
        be smaller. One request alone is first tried with ever fewer tokens, if it can be cut.
        """
        if not num_tokens:  # it moved blocks and computed nothing: there is nothing to make smaller
            return False
        is_retry, self._is_retry = self._is_retry, True
        if not is_retry:
            self._patience = min(MOST_PATIENCE, self._patience * 2)
        self._went_well = 0
        self._scheduler.token_budget = max(1, min(self.num_tokens, num_tokens // 2))
        if num_requests == 1:
            return num_tokens == 1 or self._scheduler.limits.whole_prompts
        return num_tokens == 1 or is_retry

    def relieved(self) -> None:
        """The request that took all the memory is gone: restore the budget."""
        self._scheduler.token_budget = self._scheduler.limits.max_num_batched_tokens

    def stepped(self) -> None:
        """A step went well."""
        self._is_retry = False
        most = self._scheduler.limits.max_num_batched_tokens
        if self.num_tokens == most and self._patience == FIRST_PATIENCE:
            return
        self._went_well += 1
        if self._went_well < self._patience:
            return
        self._went_well = 0
        if self.num_tokens == most:
            self._patience = FIRST_PATIENCE  # memory has sufficed for long: the next shortage starts over
        self._scheduler.token_budget = min(most, self.num_tokens * 2)
