"""The rules of transcripts: what may follow what, and the two ways to compute it."""

import pytest
import torch

from quire.core.speech import DETECT, SpeechRules, SpeechVocabulary
from quire.ops.cpu.apply_speech_rules import apply_speech_rules as on_cpu
from quire.ops.reference.apply_speech_rules import apply_speech_rules
from quire.sampling.speech_rows import SpeechRows

END, START, EN, DE, NO_SPEECH, NO_TIMES, FIRST, SIZE = 20, 21, 22, 23, 24, 25, 26, 60
WORDS = SpeechVocabulary(START, 24, END, NO_SPEECH, NO_TIMES, 18, 19, {"en": EN, "de": DE}, (3, START), (5, END), 10)
PROMPT = [9, START]
USUAL = SpeechRules()


def ruled(written, rules=USUAL, logits=None, apply=apply_speech_rules):
    """What is left of the logits of the token after `written`."""
    rows = SpeechRows(WORDS, 3, SIZE, torch.device("cpu"))
    rows.admit(1, rules, len(PROMPT))
    history = torch.zeros((3, 30), dtype=torch.int32)
    tokens = [*PROMPT, *written]
    history[1, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    logits = torch.zeros(SIZE) if logits is None else logits
    return apply(logits[None], torch.tensor([1]), torch.tensor([len(tokens)]), history, rows.tensors)[0]


def allowed(written, rules=USUAL, logits=None):
    return set(ruled(written, rules, logits).isfinite().nonzero().flatten().tolist())


def text_first(count=SIZE):
    """Logits by which no timestamp is likelier than text."""
    logits = torch.zeros(count)
    logits[:FIRST] = 9.0
    return logits


ALL, TEXT, TIMES = set(range(SIZE)), set(range(END)), set(range(FIRST, SIZE))
NEVER = {3, START}


def test_a_transcript_begins_with_an_early_time():
    assert allowed([]) == set(range(FIRST, FIRST + 11))


def test_a_time_that_opens_is_followed_by_text():
    assert allowed([FIRST + 2]) == ALL - TIMES - NEVER - {NO_TIMES}


def test_text_is_followed_by_text_or_a_later_time():
    written = [FIRST + 2, 7]
    assert allowed(written, logits=text_first()) == ALL - NEVER - {NO_TIMES} - set(range(FIRST, FIRST + 3))


def test_where_times_together_are_likelier_one_comes():
    assert allowed([FIRST + 2, 7]) == set(range(FIRST + 3, SIZE))


def test_a_time_that_closes_is_followed_by_one_that_opens_or_the_end():
    found = allowed([FIRST + 2, 7, FIRST + 5], logits=text_first())
    assert found == {*range(END, FIRST), *range(FIRST + 5, SIZE)} - NEVER - {NO_TIMES}


def test_without_timestamps_only_words_are_suppressed():
    plain = SpeechRules(timestamps=False)
    assert allowed([], plain) == ALL - NEVER - {5, END}
    assert allowed([7], plain) == ALL - NEVER


def test_forced_tokens_come_first():
    rules = SpeechRules((DETECT, 18))
    assert allowed([], rules) == {EN, DE}
    assert allowed([DE], rules) == {18}
    assert allowed([DE, 18], rules) == set(range(FIRST, FIRST + 11))


def test_rows_without_rules_stay():
    rows = SpeechRows(WORDS, 2, SIZE, torch.device("cpu"))
    rows.admit(0, SpeechRules(), 1)
    rows.release(0)
    logits = torch.randn(1, SIZE)
    for apply in (apply_speech_rules, on_cpu):
        found = apply(logits, torch.tensor([0]), torch.tensor([1]), torch.zeros(2, 9, dtype=torch.int32), rows.tensors)
        assert torch.equal(found, logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_ways_are_one(dtype):
    generator = torch.Generator().manual_seed(0)
    for rules in (SpeechRules(), SpeechRules((DETECT, 18)), SpeechRules((EN,), timestamps=False)):
        for _ in range(60):
            count = int(torch.randint(0, 10, (1,), generator=generator))
            written = torch.randint(0, SIZE, (count,), generator=generator).tolist()
            logits = (torch.randn(SIZE, generator=generator) * 3).to(dtype)
            wanted, found = (ruled(written, rules, logits, apply) for apply in (apply_speech_rules, on_cpu))
            assert torch.equal(found, wanted), written
