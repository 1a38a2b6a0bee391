"""EncodingTotals: how often media were encoded, and how often what was kept of them served again."""

from quire.core.result import EncoderFigures


class EncodingTotals:
    """Of one engine, since it was started."""

    def __init__(self) -> None:
        self.encoded = 0
        self.found = 0
        self.seconds = 0.0

    def add(self, figures: EncoderFigures) -> None:
        self.encoded += figures.encoded
        self.found += figures.found
        self.seconds += figures.seconds
