"""The `quire` command: finds the subcommand, and turns every expected error into one line and exit code 2."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group
from cyclopts.exceptions import UnusedCliTokensError

from quire.cli.help_page import HELP, HELP_ALL, OWN_OPTIONS, print_page
from quire.cli.options import apply_sources
from quire.cli.several_values import joined_values
from quire.config.bounds import flag
from quire.config.engine import EngineConfig
from quire.config.fields import field_sections
from quire.config.vllm_flags import COMMANDS, translate
from quire.core.errors import QuireError
from quire.core.version import QUIRE_VERSION

# Name → where its function is and its line in `quire --help`. Nothing is imported until the command runs.
_COMMANDS = {
    "chat": ("quire.cli.chat:chat", "Talk with a model in the terminal."),
    "complete": ("quire.cli.complete:complete", "Continue a text."),
    "transcribe": ("quire.cli.transcribe:transcribe", "Write down what is said in files of sound."),
    "run-batch": ("quire.cli.run_batch:run_batch", "Answer a file of requests in OpenAI's batch format."),
    "pull": ("quire.cli.pull:pull", "Download a model."),
    "plan": ("quire.cli.plan:plan", "Show how much of a device's memory a model takes, from its header alone."),
    "quantize": ("quire.cli.quantize:quantize", "Write a model's weights in 8 or 4 bits."),
    "simulate": ("quire.cli.simulate:simulate", "Try out policies and cluster sizes on simulated devices."),
    "bench": ("quire.cli.bench.group:bench", "Measure a server, a model, a start or the kernels."),
    "serve": ("quire.cli.serve:serve", "Serve a model over HTTP."),
    "route": ("quire.cli.route:route", "Route requests to instances on other hosts."),
    "engine": ("quire.cli.engine:engine", "Run an engine for servers on other hosts."),
    "plugins": ("quire.cli.plugins:plugins", "List what installed packages add to quire."),
    "key": ("quire.cli.key:key", "Make an API key for the server."),
}

_HELP = (*HELP, HELP_ALL)
_FAILED = 2
_INTERRUPTED = 130
_PIPE_CLOSED = 141


def build_app() -> App:
    """The command line, with every subcommand still unloaded."""
    app = App(
        name="quire",
        help="An LLM inference and serving engine built around a paged KV cache.",
        version=QUIRE_VERSION,
        config=(apply_sources,),
        help_format="plaintext",  # rendering Markdown would take a third of the time `quire --help` takes
        group_parameters=Group(OWN_OPTIONS, sort_key=0),
    )
    for name, (target, line) in _COMMANDS.items():
        app.command(target, name=name, help=line)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        tokens = joined_values(_translated(tokens))
        app = build_app()
        if _asks_for_help(tokens):
            # straight to the page: parsing would first work out every option of the command twice more
            asked = [token for token in tokens if token not in _HELP]
            print_page(app, asked, everything=HELP_ALL in tokens)
            return 0
        code = app(tokens, exit_on_error=False, print_error=False, verbose=False, result_action="return_value")
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader went away; Python would complain once more when it flushes on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except CycloptsError as error:
        return _fail(_explain(error))
    except (QuireError, OSError) as error:
        return _fail(str(error))
    return code if isinstance(code, int) else 0


def _translated(tokens: list[str]) -> list[str]:
    """vLLM's flags as quire's; what is remarked goes beside the log."""
    if not tokens or tokens[0] not in COMMANDS:
        return tokens
    own = {flag(name) for name in field_sections(EngineConfig)}
    translated = translate(tokens, own)
    for remark in translated.remarks:
        print("quire:", remark, file=sys.stderr)
    return translated.tokens


def _asks_for_help(tokens: Sequence[str]) -> bool:
    """Whether to print a page; what follows -- is text, and an unknown command is an error first."""
    before = tokens[: tokens.index("--")] if "--" in tokens else tokens
    return any(token in _HELP for token in before) and (before[0] in _COMMANDS or before[0] in _HELP)


def _explain(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError):
        unused = " ".join(error.unused_tokens or [])
        return (
            f"unexpected argument {unused!r}; put a text of several words in quotes, and give settings as --name value."
        )
    message = str(error)
    return message[:1].lower() + message[1:]


def _fail(message: str) -> int:
    print("quire: error:", " ".join(message.split()), file=sys.stderr)
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())
