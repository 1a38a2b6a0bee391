"""What the same sequences would waste if each had its KV in one piece, reserved before it starts.

The three ways are those the PagedAttention paper compares with: room for the longest context allowed, for the answer
rounded up to a power of two, and for exactly the answer (which nobody knows beforehand).
"""

from typing import Self

import msgspec


class Reservations(msgspec.Struct):
    """Slots times output tokens, summed over sequences: every output token takes about a step."""

    used: int = 0
    whole_context: int = 0
    power_of_two: int = 0
    exact: int = 0

    def add(self, prompt: int, output: int, longest: int) -> None:
        """A sequence that produced `output` tokens after `prompt` ones, if `longest` are allowed in all."""
        self.used += output * prompt + output * (output - 1) // 2
        self.whole_context += output * longest
        self.power_of_two += output * min(longest, prompt + (1 << (output - 1).bit_length() if output else 0))
        self.exact += output * (prompt + output)

    def merge(self, other: Self) -> None:
        self.used += other.used
        self.whole_context += other.whole_context
        self.power_of_two += other.power_of_two
        self.exact += other.exact

    def waste(self, reserved: int) -> float:
        """Share of `reserved` slots that hold no token, on average over the sequences' lives."""
        return 1 - self.used / reserved if reserved else 0.0
