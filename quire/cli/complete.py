"""`quire complete`: continues a text, printed as it comes."""

import re
import sys
from typing import Annotated

from cyclopts import Parameter

from quire.cli.options import CACHE, MODEL, SCHEDULER, CacheOptions, ConfigFile, ModelOptions, SchedulerOptions
from quire.cli.sampling_options import SAMPLING, SamplingOptions
from quire.cli.starting import start
from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError

_LOOKS_LIKE_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?")


def _is_text(hint: object, value: str) -> None:
    """Refuses a misspelt option, which would pass as a prompt because a lone hyphen must."""
    if _LOOKS_LIKE_OPTION.fullmatch(value):
        raise ValueError("There is no such option; give a text that looks like one on standard input.")


Prompt = Annotated[
    str,
    Parameter(
        help='The text to continue; "-" reads it from standard input.', allow_leading_hyphen=True, validator=_is_text
    ),
]
Json = Annotated[
    bool,
    Parameter(
        name="--json",
        negative="",
        show_default=False,
        help="Print one JSON object with tokens, finish reason and times when it is done, instead of text as it comes.",
    ),
]
Logprobs = Annotated[
    int | None, Parameter(help="With --json: log probabilities of so many of the most likely tokens at each position.")
]
_FAILED = 1


def complete(
    prompt: Prompt,
    /,
    *,
    as_json: Json = False,
    logprobs: Logprobs = None,
    config: ConfigFile = None,
    sampling: SamplingOptions = SAMPLING,
    model: ModelOptions = MODEL,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
) -> int:
    """Continue a text. Standard output gets the text and nothing else."""
    if logprobs is not None and not as_json:
        raise ConfigError("--logprobs is given without --json, and only that prints them; add --json.")
    params = sampling.params(logprobs=logprobs)
    text = _standard_input() if prompt == "-" else prompt
    engine, _ = start(EngineConfig(model, cache, scheduler))

    from quire.engine.stream import TextStream

    with TextStream(engine, text, params) as stream:
        for piece in stream:
            if not as_json:
                print(piece, end="", flush=True)
    if as_json:
        _print_json(stream.output)
    elif sys.stdout.isatty():
        print()  # a shell's prompt begins on a line of its own
    return _FAILED if stream.output.outputs[0].finish_reason == "error" else 0


def _standard_input() -> str:
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise ConfigError("standard input is not UTF-8 text.") from None
    if not text:
        raise ConfigError("standard input is empty; pipe a text into quire complete -, or give it as an argument.")
    return text


def _print_json(output: object) -> None:
    import msgspec

    print(msgspec.json.encode(output, enc_hook=list).decode())  # logprobs are made when they are read
