"""adjust_logits on a CPU: as the reference, with masks applied by numpy."""

from functools import partial

from quire.ops.cpu.apply_token_bitmask import apply_token_bitmask
from quire.ops.reference import adjust_logits as reference

adjust_logits = partial(reference.adjust_logits, mask=apply_token_bitmask)
