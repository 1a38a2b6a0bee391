"""Whisper on spoken files by one contestant: texts, seconds of the clock and of the processor.

    python benchmarks/peers/whisper_peers.py quire|openai-whisper|faster-whisper MODEL FILE...

MODEL is a folder of `convert_whisper.py` for quire, OpenAI's `.pt` for openai-whisper, and for faster-whisper what
`ct2-transformers-converter` makes of the folder. All of them are greedy with fallback and read what came before.
One JSON object is printed. `espeak-ng -w FILE TEXT` speaks. Give all the same cores (`taskset`, OMP_NUM_THREADS).
"""

import json
import os
import sys
import time
from collections.abc import Callable

Run = Callable[[list[str]], list[str]]


def _quire(model: str) -> Run:
    from quire import LLM

    llm = LLM(model, max_num_seqs=8, dtype="float32")
    return lambda files: [transcript.text for transcript in llm.transcribe(files)]


def _openai_whisper(model: str) -> Run:
    import whisper
    from faster_whisper.audio import decode_audio  # whisper's own calls ffmpeg's command; the samples are the same

    loaded = whisper.load_model(model)
    return lambda files: [loaded.transcribe(decode_audio(file), fp16=False)["text"].strip() for file in files]


def _faster_whisper(model: str) -> Run:
    from faster_whisper import WhisperModel

    threads = int(os.environ.get("OMP_NUM_THREADS", "2"))
    loaded = WhisperModel(model, device="cpu", compute_type="float32", cpu_threads=threads)

    def run(files: list[str]) -> list[str]:
        heard = [loaded.transcribe(file, language="en", beam_size=1, best_of=1)[0] for file in files]
        return ["".join(segment.text for segment in segments).strip() for segments in heard]

    return run


_CONTESTANTS = {"quire": _quire, "openai-whisper": _openai_whisper, "faster-whisper": _faster_whisper}


def main(name: str, model: str, files: list[str]) -> None:
    run = _CONTESTANTS[name](model)
    run(files[:1])
    wall, cpu = time.monotonic(), time.process_time()
    texts = run(files)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    print(json.dumps({"contestant": name, "wall_seconds": wall, "cpu_seconds": cpu, "texts": texts}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
