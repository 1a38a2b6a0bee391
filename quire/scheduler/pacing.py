"""Pacer: sizes the prompt part of a step so that running streams keep their pace.

Fits step time online as a sum of what a step holds (a fixed part, prompt tokens, prompt attention, decodes,
their context) by recursive least squares, and grants the most prompt tokens whose predicted time stays under
the target. It only ever sees loads and times, so it fits any device.
"""

from dataclasses import dataclass

FORGETTING = 0.995
"""Weight of the past per step: about 200 steps are remembered."""
TRUST = 2.0
"""A chunk at most this many times the largest one measured: beyond it the fit is a guess."""
FIRST_CHUNK = 64
SMALLEST_CHUNK = 16
"""Prompts always move, however tight the target."""
SLACK = 0.95
"""Share of the target that a predicted step may fill."""
SCALES = (1.0, 1e-3, 1e-7, 1e-2, 1e-5)
"""Bring the features of a typical step near 1, for numerical health."""


@dataclass(slots=True)
class StepLoad:
    """What a step holds, as far as it takes time."""

    prompt_tokens: int = 0
    prompt_pairs: int = 0
    """(token, earlier token) pairs that prompt attention looks at."""
    decodes: int = 0
    decode_context: int = 0
    """Tokens of context that decodes read."""

    def with_prompt(self, num_tokens: int, context: int) -> "StepLoad":
        """This load and a prompt chunk of `num_tokens` behind `context` tokens."""
        pairs = num_tokens * context + num_tokens * num_tokens // 2
        return StepLoad(self.prompt_tokens + num_tokens, self.prompt_pairs + pairs, self.decodes, self.decode_context)

    def features(self) -> list[float]:
        values = (1, self.prompt_tokens, self.prompt_pairs, self.decodes, self.decode_context)
        return [value * scale for value, scale in zip(values, SCALES, strict=True)]


class Pacer:
    """Keeps steps with running streams under `target` seconds."""

    def __init__(self, target: float) -> None:
        self._target = target
        size = len(SCALES)
        self._weights = [0.0] * size
        self._covariance = [[1e3 if i == j else 0.0 for j in range(size)] for i in range(size)]
        self._largest = 0
        self._best_rate = 0.0
        """Prompt tokens a second in the fastest step so far: where memory is the limit small chunks look free, and
        without this floor the fit would believe that large ones are too."""
        self._caution = 1.0
        """How much longer than predicted recent steps took; jumps up at once and comes down slowly."""

    def prompt_tokens(self, load: StepLoad, context: int, most: int) -> int:
        """How many prompt tokens to add to `load`, behind `context` tokens, of at most `most`."""
        if not load.decodes:
            return most
        high = min(most, max(FIRST_CHUNK, int(self._largest * TRUST)))
        if self._largest == 0 or self._fits(load.with_prompt(high, context)):
            return high
        low = 0
        while high - low > SMALLEST_CHUNK:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(load.with_prompt(middle, context)) else (low, middle)
        return min(most, max(low, SMALLEST_CHUNK))

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step of this load took that long."""
        features = load.features()
        predicted = self._predict(features)
        if predicted > 0 and load.prompt_tokens and load.decodes:
            self._caution = min(3.0, max(seconds / predicted, 1.0, self._caution * 0.98))
        self._largest = max(load.prompt_tokens, self._largest)
        self._best_rate = max(self._best_rate, load.prompt_tokens / seconds if seconds > 0 else 0.0)
        self._learn(features, seconds)

    def _fits(self, load: StepLoad) -> bool:
        fastest = load.prompt_tokens / self._best_rate if self._best_rate else 0.0
        return max(self._predict(load.features()), fastest) * self._caution <= self._target * SLACK

    def _predict(self, features: list[float]) -> float:
        return sum(max(0.0, weight) * feature for weight, feature in zip(self._weights, features, strict=True))

    def _learn(self, features: list[float], seconds: float) -> None:
        size = range(len(features))
        covariance = self._covariance
        spread = [sum(covariance[i][j] * features[j] for j in size) for i in size]
        denominator = FORGETTING + sum(features[i] * spread[i] for i in size)
        gain = [value / denominator for value in spread]
        error = seconds - sum(self._weights[i] * features[i] for i in size)
        self._weights = [self._weights[i] + gain[i] * error for i in size]
        # directions that no step exercises would grow without bound under forgetting: let those rest
        forget = FORGETTING if max(covariance[i][i] for i in size) < 1e4 else 1.0
        self._covariance = [[(covariance[i][j] - gain[i] * spread[j]) / forget for j in size] for i in size]
