"""`quire run-batch`: answers a file of requests in OpenAI's batch format; run again, it continues where it stopped."""

import functools
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quire.cli.batch_progress import BatchProgress
from quire.cli.interrupt import Interrupt
from quire.cli.options import (
    CACHE,
    MODEL,
    MULTIMODAL,
    PARSERS,
    SCHEDULER,
    CacheOptions,
    ConfigFile,
    ModelOptions,
    MultimodalOptions,
    ParserOptions,
    SchedulerOptions,
)
from quire.cli.starting import start
from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError

if TYPE_CHECKING:
    from quire.engine.batch_run import BatchRunner
    from quire.protocol.batch.lines import BadLine, BatchLine

Input = Annotated[Path, Parameter(name="INPUT", help="File with a request on each line: custom_id, method, url, body.")]
Output = Annotated[
    Path,
    Parameter(name="OUTPUT", help="File that results are added to. Requests that have theirs in it are not run again."),
]
ServedName = Annotated[
    str | None, Parameter(help="What requests may call the model beside the name it was given with --model.")
]
Template = Annotated[Path | None, Parameter(help="A Jinja chat template to use instead of the model's own.")]
_SOME_FAILED = 1
_INTERRUPTED = 130


def run_batch(
    source: Input,
    target: Output,
    /,
    *,
    served_model_name: ServedName = None,
    chat_template: Template = None,
    config: ConfigFile = None,
    model: ModelOptions = MODEL,
    parsers: ParserOptions = PARSERS,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    multimodal: MultimodalOptions = MULTIMODAL,
) -> int:
    """Answer a file of requests in OpenAI's batch format. The exit code is 1 when some of them failed."""
    from quire.protocol.batch.lines import read_lines
    from quire.protocol.batch.results import ResultFile

    _check_paths(source, target)
    with ResultFile(target) as results, source.open("rb") as lines:
        covered = [results.covers(line) for line in read_lines(lines)]
        if all(covered):
            print(f"quire: nothing to do: all of {len(covered):,} requests have their result.", file=sys.stderr)
            return 0
        lines.seek(0)
        engine, path = start(EngineConfig(model, cache, scheduler, multimodal=multimodal))

        from quire.engine.batch_run import BatchRunner
        from quire.text.load import load_chat_template
        from quire.text.template_pool import TemplatePool

        with closing(TemplatePool()) as pool:
            assert engine.tokenizer is not None
            tokenizer, name = engine.tokenizer, path.stem if path.is_file() else path.resolve().name
            names = tuple(dict.fromkeys([served_model_name or model.model, model.model, name]))
            shown = parsers.tools_shown
            template = functools.cache(
                lambda: load_chat_template(path, tokenizer, pool, file=chat_template, tools=shown)
            )
            runner = BatchRunner(engine, template, results, names, parsers, multimodal)
            return _run(runner, read_lines(lines), len(covered))


def _run(runner: "BatchRunner", lines: "Iterator[BatchLine | BadLine]", total: int) -> int:
    stopped = False
    with Interrupt() as interrupt, BatchProgress(total) as progress:
        for counts in runner.run(lines):
            progress.show(counts)
            if interrupt.asked:
                stopped = True
                break
    print(f"quire: {progress.summary(runner.counts)}", file=sys.stderr)
    if stopped:
        print("quire: stopped; run the same command again to continue.", file=sys.stderr)
        return _INTERRUPTED
    return _SOME_FAILED if runner.counts.failed else 0


def _check_paths(source: Path, target: Path) -> None:
    if not source.is_file():
        raise ConfigError(f"there is no file {str(source)!r} to read requests from.")
    if target.exists() and source.samefile(target):
        raise ConfigError(f"{source} is both the input and the output; name another output file.")
    if not target.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {target}: there is no folder {target.absolute().parent}.")
