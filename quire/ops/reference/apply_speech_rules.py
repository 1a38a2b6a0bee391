"""apply_speech_rules: the definition, for all rows at once; nothing in it depends on values, so a graph can hold it."""

import torch
from torch import Tensor

from quire.ops.speech_tensors import SpeechTensors

_DETECT = -1


def apply_speech_rules(
    logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor, rules: SpeechTensors
) -> Tensor:
    """See `quire.ops.functional.apply_speech_rules`."""
    device, first_time = logits.device, rules.no_timestamps + 1
    begins, num_forced = rules.begins[rows], rules.num_forced[rows]
    since = positions - begins - num_forced  # tokens of the transcript so far
    ids = torch.arange(logits.shape[1], device=device)
    is_time = (ids >= first_time)[None]
    values = logits.float()

    places = torch.arange(history.shape[1], device=device)
    tokens = history[rows].long()
    written = (places >= (begins + num_forced)[:, None]) & (places < positions[:, None])
    last_time = torch.where(written & (tokens >= first_time), tokens, -1).amax(dim=1)  # times only grow
    after_time = (since >= 1) & (_at(tokens, positions - 1) >= first_time)
    closed = (since < 2) | (_at(tokens, positions - 2) >= first_time)

    banned = _marked(ids, rules.suppressed)[None] | ((since == 0)[:, None] & _marked(ids, rules.suppressed_first))
    # a pair is complete: text follows; a segment is to be closed or opened: no text may come
    timed = (after_time & closed)[:, None] & is_time
    timed = timed | ((after_time & ~closed)[:, None] & (ids < rules.end))
    # what closes a segment may be when it began; all others are later than the last
    earliest = torch.where(last_time < 0, first_time, last_time + (~(after_time & ~closed)).long())
    timed = timed | (is_time & (ids < earliest[:, None])) | (ids == rules.no_timestamps)
    timed = timed | ((since == 0)[:, None] & (~is_time | (ids > rules.max_initial)))
    banned = banned | (rules.timestamps[rows][:, None] & timed)
    ruled = values.masked_fill(banned, float("-inf"))
    # where any time is likelier than every text, it is a time
    times = ruled.masked_fill(~is_time, float("-inf")).logsumexp(dim=1)
    texts = ruled.masked_fill(is_time, float("-inf")).amax(dim=1)
    ruled = ruled.masked_fill((rules.timestamps[rows] & (times > texts))[:, None] & ~is_time, float("-inf"))

    places = (positions - begins).clamp(0, rules.forced.shape[1] - 1)
    wanted = rules.forced[rows, places][:, None]
    others = torch.where(wanted == _DETECT, _marked(ids, rules.no_languages)[None], ids != wanted)
    is_forced = (since < 0)[:, None]
    ruled = torch.where(is_forced, values.masked_fill(others, float("-inf")), ruled)
    return torch.where((begins < 0)[:, None], values, ruled)


def _at(tokens: Tensor, places: Tensor) -> Tensor:
    return tokens.gather(1, places.clamp(min=0)[:, None])[:, 0]


def _marked(ids: Tensor, tokens: Tensor) -> Tensor:
    return torch.zeros_like(ids, dtype=torch.bool).index_fill(0, tokens, True)
