"""`quire transcribe`: writes down what is said in files of sound."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from quire.cli.options import CACHE, MODEL, SCHEDULER, CacheOptions, ConfigFile, ModelOptions, SchedulerOptions
from quire.cli.starting import start
from quire.config.engine import EngineConfig
from quire.core.transcript import Transcript
from quire.protocol.openai.languages import language_code
from quire.protocol.openai.transcript_answer import transcript_json, transcript_text, transcript_verbose
from quire.protocol.openai.transcription_form import AudioFormat

Files = Annotated[list[Path], Parameter(name="FILES", help="Files of sound; windows of all of them share steps.")]
Form = Annotated[AudioFormat, Parameter(help="How transcripts are printed.")]
Language = Annotated[str | None, Parameter(help="As a code or a name. Unset: what the first window sounds like.")]
Translate = Annotated[bool, Parameter(negative="", show_default=False, help="Write in English whatever is spoken.")]
Prompt = Annotated[str | None, Parameter(help="Text that might have come before: names, spelling.")]
Temperature = Annotated[
    float, Parameter(help="From 0 to 1; 0 is greedy, and higher where a text repeats itself or the model doubts it.")
]


def transcribe(
    files: Files,
    /,
    *,
    response_format: Form = "text",
    language: Language = None,
    translate: Translate = False,
    prompt: Prompt = None,
    temperature: Temperature = 0.0,
    config: ConfigFile = None,
    model: ModelOptions = MODEL,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
) -> int:
    """Write down what is said in files of sound, in their order, by a model of the Whisper family."""
    engine, path = start(EngineConfig(model, cache, scheduler))

    from quire.engine.transcribing import Transcriber

    transcriber = Transcriber(engine, path)
    found: dict[int, Transcript] = {}
    printed = 0
    code = None if language is None else language_code(language)
    asked = transcriber.transcribe(files, language=code, translate=translate, prompt=prompt, temperature=temperature)
    for place, transcript in asked:
        found[place] = transcript
        while printed in found:
            print(_shown(found.pop(printed), response_format, translate), end="", flush=True)
            printed += 1
    transcriber.close()
    return 0


def _shown(transcript: Transcript, form: AudioFormat, translate: bool) -> str:
    if form in ("json", "verbose_json"):
        body = transcript_json(transcript) if form == "json" else transcript_verbose(transcript, translates=translate)
        return msgspec.json.encode(body).decode() + "\n"
    return transcript_text(transcript, form)
