"""SpeechRows: the rules of transcripts that are being written, at their rows."""

import torch

from quire.core.speech import MOST_FORCED, SpeechRules, SpeechVocabulary
from quire.ops.speech_tensors import SpeechTensors
from quire.ops.upload import upload

_NO_RULES = -1


class SpeechRows:
    """Filled at admission; tokens themselves say the rest."""

    def __init__(self, vocabulary: SpeechVocabulary, num_rows: int, vocab_size: int, device: torch.device) -> None:
        """`num_rows` with the spare one, which has no rules."""
        languages = set(vocabulary.languages.values())
        others = [token for token in range(vocab_size) if token not in languages]
        latest, initial = vocab_size - 1, vocabulary.max_initial_timestamp
        self.tensors = SpeechTensors(
            suppressed=upload(vocabulary.suppressed, torch.int64, device),
            suppressed_first=upload(vocabulary.suppressed_first, torch.int64, device),
            no_languages=upload(others, torch.int64, device),
            end=vocabulary.end,
            no_timestamps=vocabulary.no_timestamps,
            max_initial=latest if initial is None else vocabulary.first_timestamp + initial,
            begins=torch.full((num_rows,), _NO_RULES, dtype=torch.int64, device=device),
            forced=torch.zeros((num_rows, MOST_FORCED), dtype=torch.int64, device=device),
            num_forced=torch.zeros((num_rows,), dtype=torch.int64, device=device),
            timestamps=torch.zeros((num_rows,), dtype=torch.bool, device=device),
        )

    def admit(self, row: int, rules: SpeechRules, num_prompt: int) -> None:
        told = self.tensors
        told.begins[row].fill_(num_prompt)
        told.num_forced[row].fill_(len(rules.forced))
        told.timestamps[row].fill_(rules.timestamps)
        for place, token in enumerate(rules.forced):
            told.forced[row, place].fill_(token)

    def release(self, row: int) -> None:
        self.tensors.begins[row].fill_(_NO_RULES)
