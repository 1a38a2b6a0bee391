"""What can be typed in a chat beside messages: lines that begin with a slash."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from quire.cli.chat_session import ChatSession
from quire.cli.sampling_options import SamplingSettings, changed
from quire.core.errors import InvalidRequest
from quire.core.nearest import did_you_mean

Command = Callable[[ChatSession, str], bool]
"""Takes what follows its name; false ends the chat."""

_RETRY_TEMPERATURE = 0.5


def run_command(session: ChatSession, line: str) -> bool:
    """Run a line that begins with a slash; false ends the chat."""
    name, _, rest = line[1:].partition(" ")
    found = _COMMANDS.get(name)
    if found is None:
        known = [f"/{known}" for known in _COMMANDS]
        raise InvalidRequest(
            f"there is no command /{name}; /help lists them.{did_you_mean('/' + name, known)} "
            "A message that begins with a slash needs a space in front of it."
        )
    usage, _, command = found
    if "TEXT" not in usage and "FILE" not in usage and "NAME" not in usage and rest.strip():
        raise InvalidRequest(f"/{name} takes no argument")
    return command(session, rest.strip())


def _help(session: ChatSession, rest: str) -> bool:
    width = max(len(usage) for usage, _, _ in _COMMANDS.values())
    lines = [f"{usage:<{width}}  {meaning}" for usage, meaning, _ in _COMMANDS.values()]
    lines += [
        "",
        "Ctrl-C stops an answer, Ctrl-D leaves. A line that ends in \\ continues in the next one.",
    ]
    session.terminal.say("\n".join(lines) + "\n")
    return True


def _exit(session: ChatSession, rest: str) -> bool:
    return False


def _clear(session: ChatSession, rest: str) -> bool:
    session.conversation.clear()
    session.terminal.say("(The conversation starts anew.)\n")
    return True


def _system(session: ChatSession, rest: str) -> bool:
    conversation = session.conversation
    if not rest:
        session.terminal.say(f"(System message: {conversation.system or 'none; the model has its own, if any'}.)\n")
        return True
    conversation.system = None if rest == "none" else rest
    session.terminal.say("(It holds from the next message on.)\n")
    return True


def _retry(session: ChatSession, rest: str) -> bool:
    if not session.conversation.turns:
        raise InvalidRequest("there is no message yet to answer again")
    before = list(session.conversation.turns)
    question = session.conversation.take_back()
    assert question is not None, "every conversation begins with a question"
    try:
        session.reply(question, _freer(session))
    except InvalidRequest:
        session.conversation.turns[:] = before
        raise
    return True


def _freer(session: ChatSession) -> SamplingSettings:
    """At temperature 0, or with a seed, the answer would be the same."""
    sampling = session.sampling
    if sampling.temperature and sampling.seed is None:
        return sampling
    temperature = sampling.temperature or _RETRY_TEMPERATURE
    session.terminal.say(f"(Another answer, with temperature {temperature:g} and no seed.)")
    return replace(sampling, temperature=temperature, seed=None)


def _save(session: ChatSession, rest: str) -> bool:
    if not rest:
        raise InvalidRequest("/save needs a file to write to, as in /save talk.json")
    path = Path(rest).expanduser()
    document = {"model": session.name, "messages": session.conversation.messages()}
    try:
        path.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {error.strerror or error}") from None
    session.terminal.say(f"(Wrote {len(session.conversation.turns)} messages to {path}.)\n")
    return True


def _params(session: ChatSession, rest: str) -> bool:
    values = {name: _shown(value) for name, value in asdict(session.sampling).items()}
    width = max(map(len, values))
    lines = [f"{name:<{width}}  {value}" for name, value in values.items()]
    if session.last_rate:
        lines += ["", f"Last answer: {session.last_rate}."]
    session.terminal.say("\n".join(lines) + "\n")
    return True


def _set(session: ChatSession, rest: str) -> bool:
    name, _, value = rest.partition(" ")
    if not value.strip():
        raise InvalidRequest("/set needs a name and a value, as in /set temperature 0.2; /params shows them")
    session.sampling = changed(session.sampling, name, value.strip())
    session.terminal.say(f"({name} is {_shown(getattr(session.sampling, name.replace('-', '_')))} now.)\n")
    return True


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(repr(each) for each in value) or "none"
    return "none" if value is None else str(value)


_COMMANDS: dict[str, tuple[str, str, Command]] = {
    "help": ("/help", "this list", _help),
    "exit": ("/exit", "leave", _exit),
    "quit": ("/quit", "leave", _exit),
    "clear": ("/clear", "forget the conversation", _clear),
    "retry": ("/retry", "answer the last message again", _retry),
    "system": ("/system TEXT", "tell the model who it is; /system none takes it back", _system),
    "params": ("/params", "how answers are chosen now, and how fast the last one came", _params),
    "set": ("/set NAME VALUE", "change that, as in /set temperature 0.2", _set),
    "save": ("/save FILE", "write the conversation to a JSON file", _save),
}
