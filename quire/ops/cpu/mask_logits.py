"""mask_logits on a CPU: as the reference, with masks applied by numpy."""

from functools import partial

from quire.ops.cpu.apply_token_bitmask import apply_token_bitmask
from quire.ops.reference import mask_logits as reference

mask_logits = partial(reference.mask_logits, mask=apply_token_bitmask)
