"""`quire chat`: a conversation with a model, in a terminal or through a pipe."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quire.cli.options import (
    CACHE,
    MODEL,
    PARSERS,
    SCHEDULER,
    CacheOptions,
    ConfigFile,
    ModelOptions,
    ParserOptions,
    SchedulerOptions,
)
from quire.cli.sampling_options import CHAT_SAMPLING, ChatSamplingOptions, SamplingSettings
from quire.cli.starting import start
from quire.config.engine import EngineConfig
from quire.config.parsers import ParserConfig
from quire.core.errors import ConfigError, InvalidRequest

if TYPE_CHECKING:
    from quire.cli.chat_session import ChatSession
    from quire.engine.engine import Engine
    from quire.text.chat_template import ChatTemplate

Message = Annotated[
    str | None, Parameter(help="Answer this one message and leave. Unset: messages are read, one a line.")
]
System = Annotated[str | None, Parameter(help="A system message, which tells the model who it is.")]
Template = Annotated[Path | None, Parameter(help="A Jinja chat template to use instead of the model's own.")]


def chat(
    model: ModelOptions = MODEL,
    *,
    message: Message = None,
    system: System = None,
    chat_template: Template = None,
    config: ConfigFile = None,
    sampling: ChatSamplingOptions = CHAT_SAMPLING,
    parsers: ParserOptions = PARSERS,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
) -> int:
    """Talk with a model. In a pipe, each line of standard input is a message and standard output gets the answers."""
    sampling.params()
    if message is not None and not message.strip():
        raise ConfigError("--message is empty; give the message, or leave it out to type several.")
    engine, path = start(EngineConfig(model, cache, scheduler))

    from quire.text.load import load_chat_template
    from quire.text.template_pool import TemplatePool

    with closing(TemplatePool()) as pool:
        assert engine.tokenizer is not None
        template = load_chat_template(path, engine.tokenizer, pool, file=chat_template)
        session = _session(
            engine,
            template,
            sampling,
            parsers,
            system,
            path.stem if path.is_file() else path.resolve().name,
            interactive=message is None and _at_terminal(),
        )
        if message is not None:
            session.reply(message)
        else:
            _talk(session)
    return 0


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _session(
    engine: "Engine",
    template: "ChatTemplate",
    sampling: SamplingSettings,
    parsers: ParserConfig,
    system: str | None,
    name: str,
    *,
    interactive: bool,
) -> "ChatSession":
    from quire.cli.chat_session import ChatSession
    from quire.cli.conversation import Conversation
    from quire.cli.terminal import Terminal
    from quire.protocol.parsers.style import AnswerStyle

    assert engine.tokenizer is not None
    context = engine.resolved.limits.max_model_len
    conversation = Conversation(template, engine.tokenizer, context=context, system=system)
    terminal = Terminal(interactive=interactive)
    if interactive:
        terminal.say(f"{name}, with a context of {context:,} tokens. /help lists the commands, Ctrl-D leaves.\n")
    style = AnswerStyle(template.text, engine.tokenizer, parsers)
    return ChatSession(engine, conversation, style, sampling, terminal, name)


def _talk(session: "ChatSession") -> None:
    """Until the end of the input, or a command to leave. A person is told of a mistake; a pipe ends with it."""
    terminal = session.terminal
    while True:
        try:
            line = terminal.read()
            if line is None or not _take(session, line):
                return
        except KeyboardInterrupt:
            if not terminal.interactive:
                raise
            terminal.say("\n(Ctrl-D or /exit leaves.)")
        except InvalidRequest as error:
            if not terminal.interactive:
                raise
            terminal.complain(f"({_sentence(str(error))})\n")


def _take(session: "ChatSession", line: str) -> bool:
    """One line of input; false ends the chat."""
    from quire.cli.chat_commands import run_command

    if line.startswith("/"):
        return run_command(session, line)
    if line.strip():
        session.reply(line.strip())
    return True


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
