"""Row: what a simulated device keeps of one sequence."""

from zlib import crc32

from quire.core.plan import Admission
from quire.simulation.workload import FIRST_SAMPLED, FIRST_SHARED


class Row:
    """Counts of tokens, prompt included; the tokens themselves mean nothing to a simulated device."""

    __slots__ = ("computed", "due", "end", "known", "name", "number", "slots", "token")

    def __init__(self, admission: Admission, length: int) -> None:
        self.number = admission.row
        self.name = f"{admission.request_id}/{admission.index}"
        self.computed = admission.num_computed
        """While the row marches in step: what it would have computed at tick 0."""
        self.known = len(admission.tokens)
        self.slots = 0
        self.end = admission.num_prompt + length
        """Where the sequence ends."""
        self.token = FIRST_SAMPLED + crc32(self.name.encode()) % (FIRST_SHARED - FIRST_SAMPLED)
        """What it samples until then: no other sequence samples the same."""
        self.due = 0
        """The tick at which a marching row must be looked at."""
