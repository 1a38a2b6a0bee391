"""Speech beside OpenAI's own code: the text of five files, and of ten minutes the words of tiny.en with their times.

Needs what no test brings: openai-whisper, espeak-ng, OpenAI's tiny.en.pt (QUIRE_TINY_EN_PT) and the folder
that benchmarks/peers/convert_whisper.py makes of it (QUIRE_TINY_EN).
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from quire import LLM
from quire.multimodal.decode_audio import open_sound
from quire.multimodal.resample import Resampler

pytestmark = [
    pytest.mark.slow,
    # openai-whisper leaves the file of its vocabulary open
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*tiktoken:pytest.PytestUnraisableExceptionWarning"),
]
_SENTENCES = (
    "The library opens at nine in the morning, and closes when the last reader has gone home.",
    "A page of parchment was made from the skin of a calf, and took the better part of a month.",
    "Nobody knows how many copies were lost in the fire; the catalogue itself did not survive.",
    "In the second year the binder moved to a larger house, with three windows to the north.",
    "Paper came later, was cheaper, and did not last as long as those who sold it had promised.",
)
_VOICES = ("en", "en-us", "en+f3", "en-gb-scotland", "en+m4")


def _speak(path: Path, text: str, *options: str) -> None:
    program = shutil.which("espeak-ng")
    if program is None:
        pytest.skip("did not run: there is no espeak-ng here")
    subprocess.run([program, *options, "-w", str(path), text], check=True)


def _samples(data: bytes) -> np.ndarray:
    sound = open_sound(data)
    resampler = Resampler(sound.rate, 16_000)
    return np.concatenate([*map(resampler.add, sound.pieces), resampler.finish()]).astype(np.float32)


def _models() -> tuple[str, str]:
    """OpenAI's file and quire's folder."""
    weights, folder = os.environ.get("QUIRE_TINY_EN_PT"), os.environ.get("QUIRE_TINY_EN")
    if weights is None or folder is None:
        pytest.skip("did not run: QUIRE_TINY_EN_PT and QUIRE_TINY_EN name no model")
    return weights, folder


def test_five_files_at_once_are_those_of_the_reference(tmp_path: Path) -> None:
    """Each in another voice, at another speed."""
    whisper = pytest.importorskip("whisper")
    weights, folder = _models()
    files = []
    for number, (sentence, voice) in enumerate(zip(_SENTENCES, _VOICES, strict=True)):
        path = tmp_path / f"{number}.wav"
        _speak(path, sentence, "-v", voice, "-s", str(130 + 12 * number))
        files.append(path.read_bytes())
    llm = LLM(folder, dtype="float32", gpu_memory_utilization=0.2)
    try:
        found = [transcript.text for transcript in llm.transcribe(files)]
    finally:
        llm.close()
    model = whisper.load_model(weights, device="cpu")
    assert found == [model.transcribe(_samples(data), fp16=False)["text"].strip() for data in files]


def test_ten_minutes_are_those_of_the_reference(tmp_path: Path) -> None:
    whisper = pytest.importorskip("whisper")
    weights, folder = _models()
    text = " ".join(f"Part {number}. {' '.join(_SENTENCES)}" for number in range(1, 25))
    _speak(tmp_path / "long.wav", text)
    data = (tmp_path / "long.wav").read_bytes()
    samples = _samples(data)
    assert len(samples) >= 600 * 16_000
    llm = LLM(folder, dtype="float32", gpu_memory_utilization=0.2)
    try:
        [found] = llm.transcribe([data], word_timestamps=True)
    finally:
        llm.close()
    wanted = whisper.load_model(weights, device="cpu").transcribe(samples, word_timestamps=True, fp16=False)
    assert found.text == wanted["text"].strip()
    words = [(word.word, word.start, word.end) for segment in found.segments for word in segment.words]
    told = [word for segment in wanted["segments"] for word in segment["words"]]
    assert words == [(word["word"], round(float(word["start"]), 2), round(float(word["end"]), 2)) for word in told]
