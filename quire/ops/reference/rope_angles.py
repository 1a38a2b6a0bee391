"""rope_angles: cosine and sine of what tokens at their positions are turned by."""

from torch import Tensor


def rope_angles(positions: Tensor, frequencies: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    angles = positions.unsqueeze(1) * frequencies
    return angles.cos() * factor, angles.sin() * factor
