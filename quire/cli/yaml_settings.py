"""A --config file as flat settings: every key is known, in its place, given once and of the right type, or an error."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from quire.config.engine import EngineConfig
from quire.config.fields import as_text, check_value, field_sections, section_types
from quire.config.router import RouterConfig
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

_SHOW = 60
_ROUTER = "router"
"""The section of `quire route`, which has no part in an engine's settings."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, except that a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key, _ in reversed(node.value):
            if keys.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
        return super().construct_mapping(node, deep)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in file `path`, by field name."""
    return flat_settings(_load(path), str(path))


def flat_settings(document: dict[Any, Any], source: str) -> dict[str, Any]:
    """The settings of a document like such a file, by field name; `source` is what errors call it."""
    settings: dict[str, Any] = {}
    for name, value in _flat(document, source):
        if name in settings:
            raise ConfigError(f"{source} gives {name} twice, flat and in a section; keep one.")
        settings[name] = value
    return settings


def _load(path: Path) -> dict[Any, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        document = yaml.load(text, Loader=_Loader)  # nosec B506 # a SafeLoader
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config {path} is not UTF-8 text; give a YAML file.") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"--config {path}{line} is not valid YAML: {error.problem}.") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not valid YAML: {' '.join(str(error).split())[:120]}.") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"--config {path} holds a {type(document).__name__}, but `name: value` lines are expected.")
    return document


def _flat(document: dict[Any, Any], source: str) -> Iterator[tuple[str, Any]]:
    sections, fields = section_types(EngineConfig) | {_ROUTER: RouterConfig}, _field_sections()
    for key, value in document.items():
        name = _name(key)
        if isinstance(value, dict) and name in sections:
            yield from _section(name, sections[name], value, source)
        elif value is None and name in sections and name not in fields:
            continue  # an empty section
        elif name in fields:
            yield name, _checked(sections[fields[name]], name, value, source)
        else:
            close = did_you_mean(name, [*fields, *sections])
            raise ConfigError(f"{source} has an unknown key {name[:_SHOW]!r}.{close}")


def _section(title: str, section: type, values: dict[Any, Any], source: str) -> Iterator[tuple[str, Any]]:
    fields = _field_sections()
    own = [each.name for each in dataclasses.fields(section)]
    for key, value in values.items():
        name = _name(key)
        if name in own:
            yield name, _checked(section, name, value, source)
        elif name in fields:
            raise ConfigError(f"{source} has {name} in section {title}, but it belongs in section {fields[name]}.")
        else:
            close = did_you_mean(name, own)
            raise ConfigError(f"{source} has an unknown key {name[:_SHOW]!r} in section {title}.{close}")


def _field_sections() -> dict[str, str]:
    """Field name → section. What a router and a server both have is the server's where no section is named."""
    return dict.fromkeys((each.name for each in dataclasses.fields(RouterConfig)), _ROUTER) | field_sections(
        EngineConfig
    )


def _name(key: Any) -> str:
    return str(key).replace("-", "_")


def _checked(section: type, name: str, value: Any, source: str) -> Any:
    value = as_text(section, name, value)
    try:
        check_value(section, name, value)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return value
