"""Config sections as command-line options, and the two other places settings come from: QUIRE_* variables and --config.

A flag wins over a variable, a variable over the file, the file over the default. Names come from the sections alone, so
a command takes a section by using its type from here in its signature; `main.py` lists the commands.
"""

import os
import re
import types
from collections.abc import Iterable, MutableMapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from cyclopts import App, ArgumentCollection, Group, Parameter
from cyclopts.config import Dict, Env

from quire.config.bounds import flag
from quire.config.cache import CacheConfig
from quire.config.engine import EngineConfig
from quire.config.fields import field_sections
from quire.config.lora import LoraConfig
from quire.config.model import ModelConfig
from quire.config.multimodal import MultimodalConfig
from quire.config.observe import ObserveConfig
from quire.config.parallel import ParallelConfig
from quire.config.parsers import ParserConfig
from quire.config.router import RouterConfig
from quire.config.scheduler import SchedulerConfig
from quire.config.server import ServerConfig
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

_PREFIX = "QUIRE_"
_CONFIG = "config"
_SERVICE_VARIABLE = re.compile(
    r"QUIRE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT = re.compile(r"QUIRE_(\w+_)?PORT")
_WHOLE_NUMBER = re.compile(r"[+-]?\d+")


def _section(title: str, order: float) -> Parameter:
    return Parameter(name="*", group=Group(title, sort_key=order))


ModelOptions = Annotated[ModelConfig, _section("Model", 1)]
CacheOptions = Annotated[CacheConfig, _section("KV cache", 2)]
SchedulerOptions = Annotated[SchedulerConfig, _section("Scheduler", 3)]
ParallelOptions = Annotated[ParallelConfig, _section("Parallelism", 4)]
ServerOptions = Annotated[ServerConfig, _section("Server", 5)]
RouterOptions = Annotated[RouterConfig, _section("Router", 5)]
ObserveOptions = Annotated[ObserveConfig, _section("Logging", 6)]
ParserOptions = Annotated[ParserConfig, _section("Tools and thinking", 1.5)]
LoraOptions = Annotated[LoraConfig, _section("LoRA adapters", 1.7)]
MultimodalOptions = Annotated[MultimodalConfig, _section("Images", 1.8)]
# cyclopts wants a default for a section whose fields all have one.
MODEL, CACHE, SCHEDULER, PARALLEL = ModelConfig(), CacheConfig(), SchedulerConfig(), ParallelConfig()
SERVER, OBSERVE, PARSERS, LORA = ServerConfig(), ObserveConfig(), ParserConfig(), LoraConfig()
MULTIMODAL = MultimodalConfig()
ROUTER = RouterConfig()

ConfigFile = Annotated[
    Path | None,
    Parameter(
        help="YAML file with any of the settings below, flat (max_num_seqs: 8) or by section (scheduler: ...). "
        "A flag or a QUIRE_ variable (QUIRE_MAX_NUM_SEQS) wins over it."
    ),
]


def apply_sources(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill what the command line left open, in order of precedence; cyclopts calls this after parsing."""
    known = {**field_sections(EngineConfig), **dict.fromkeys(each.name for each in fields(RouterConfig))}
    drop_service_variables(os.environ)
    check_environment(os.environ, known)
    Env(_PREFIX, command=False)(app, commands, arguments)
    path = _config_path(arguments)
    if path is not None:
        from quire.cli.yaml_settings import read_settings

        settings = read_settings(path)
        used = {name: value for name, value in settings.items() if _argument(arguments, name) is not None}
        Dict(used, source=str(path), use_commands_as_keys=False)(app, commands, arguments)
    _check_whole_numbers(arguments)


def drop_service_variables(environment: MutableMapping[str, str]) -> None:
    """Forget what Kubernetes tells every container about Services called quire or quire-something: QUIRE_PORT is then
    tcp://10.0.0.1:8000, and none of them is a setting."""
    for name, value in list(environment.items()):
        if _SERVICE_VARIABLE.fullmatch(name) or (_SERVICE_PORT.fullmatch(name) and "://" in value):
            del environment[name]


def check_environment(environment: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ConfigError for a QUIRE_ variable that is no setting; one that this command does not use is fine."""
    variables = [_PREFIX + name.upper() for name in (*known, _CONFIG)]
    for variable in sorted(environment):
        if variable.startswith(_PREFIX) and variable not in variables:
            raise ConfigError(
                f"the environment variable {variable} is no setting of quire's; unset it."
                f"{did_you_mean(variable, variables)}"
            )


def _argument(arguments: ArgumentCollection, name: str) -> Any:
    return next((argument for argument in arguments if argument.name == flag(name)), None)


def _config_path(arguments: ArgumentCollection) -> Path | None:
    argument = _argument(arguments, _CONFIG)
    return Path(argument.tokens[0].value).expanduser() if argument is not None and argument.tokens else None


def _check_whole_numbers(arguments: ArgumentCollection) -> None:
    """cyclopts would round 16.5 to 16 in silence."""
    for argument in arguments:
        for token in argument.tokens:
            if _is_int(argument.hint) and token.value and not _WHOLE_NUMBER.fullmatch(token.value):
                if _admits_none(argument.hint) and token.value.lower() == "none":
                    continue
                name = token.keyword or argument.name
                raise ConfigError(f"{name} is {token.value!r}, but it must be a whole number.")


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_int(hint: Any) -> bool:
    return int in _members(hint)


def _admits_none(hint: Any) -> bool:
    return type(None) in _members(hint)
