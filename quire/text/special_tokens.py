"""Which token ids play a part beyond text: where a sequence begins and ends, padding, the unknown."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The ids a model's files name. A model may end a sequence with any of several tokens."""

    bos: int | None = None
    eos: tuple[int, ...] = ()
    """The one the files call eos_token comes first."""
    pad: int | None = None
    unk: int | None = None

    def ids(self) -> tuple[int, ...]:
        """Every id named here, in no particular order, repeated where one token plays two parts."""
        single = (self.bos, self.pad, self.unk)
        return (*self.eos, *(token_id for token_id in single if token_id is not None))
