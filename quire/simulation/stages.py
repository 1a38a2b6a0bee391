"""Stages: when a step runs on each stage of a pipeline, on the virtual clock. One stage is a device on its own."""

from quire.core.plan import StepPlan


class Stages:
    """All take equally long for a step: layers are cut so. A stage begins a step when it has done the one before, and
    when the stage before has passed it on; the first one also waits for the tokens that its rows continue.
    """

    def __init__(self, count: int) -> None:
        self._free = [0.0] * count
        """When each stage has done all that it was given."""
        self._sampled: dict[int, float] = {}
        """By row: when the last token it was given was there."""

    def run(self, now: float, plan: StepPlan, seconds: float, hop: float) -> tuple[float, float]:
        """When the last stage begins and ends a step of so many `seconds` a stage; passing it on takes a `hop`."""
        start, is_pipeline = now, len(self._free) > 1
        if is_pipeline:
            for admission in plan.admitted:
                self._sampled.pop(admission.row, None)
            start = max(now, max((self._sampled.get(row, 0.0) for row in plan.rows), default=0.0))
        for stage, free in enumerate(self._free):
            begun = max(start, free)
            self._free[stage] = end = begun + seconds
            start = end + hop
        if is_pipeline:
            self._sampled.update(dict.fromkeys(plan.rows[: plan.num_sampling], end))
        return begun, end
