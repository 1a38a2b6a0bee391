"""apply_speech_rules on a CPU: row by row, on the stretches of the vocabulary that a rule is about."""

from torch import Tensor

from quire.ops.speech_tensors import SpeechTensors

_NEVER = float("-inf")
_DETECT = -1


def apply_speech_rules(
    logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor, rules: SpeechTensors
) -> Tensor:
    """See `quire.ops.functional.apply_speech_rules`."""
    ruled = logits.float() if logits.dtype.itemsize < 4 else logits.clone()
    several = zip(ruled, rows.tolist(), positions.tolist(), strict=True)
    for values, row, position in several:
        begin = int(rules.begins[row])
        if begin < 0:
            continue
        forced = rules.forced[row, : int(rules.num_forced[row])].tolist()
        if position - begin < len(forced):
            _force(values, forced[position - begin], rules)
            continue
        written: list[int] = history[row, begin + len(forced) : position].tolist()
        values.index_fill_(0, rules.suppressed, _NEVER)
        if not written:
            values.index_fill_(0, rules.suppressed_first, _NEVER)
        if rules.timestamps[row]:
            _keep_time(values, written, rules)
    return ruled


def _force(values: Tensor, token: int, rules: SpeechTensors) -> None:
    if token == _DETECT:
        values.index_fill_(0, rules.no_languages, _NEVER)
        return
    kept = values[token].clone()
    values.fill_(_NEVER)
    values[token] = kept


def _keep_time(values: Tensor, written: list[int], rules: SpeechTensors) -> None:
    first_time = rules.no_timestamps + 1
    values[rules.no_timestamps] = _NEVER
    if not written:
        values[:first_time] = _NEVER
        values[rules.max_initial + 1 :] = _NEVER
        return
    after_time = written[-1] >= first_time
    closed = len(written) < 2 or written[-2] >= first_time
    if after_time and closed:
        values[first_time:] = _NEVER
    elif after_time:
        values[: rules.end] = _NEVER
    last = max((token for token in written if token >= first_time), default=None)
    if last is not None:
        values[first_time : last if after_time and not closed else last + 1] = _NEVER
    if values[first_time:].logsumexp(0) > values[:first_time].max():
        values[:first_time] = _NEVER
