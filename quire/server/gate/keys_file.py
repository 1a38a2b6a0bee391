"""The keys file: YAML, one entry for each name. Every mistake in it is told by its line and entry, never by a key."""

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean
from quire.core.request import DEFAULT_TENANT
from quire.server.gate.account import Limits
from quire.server.gate.keys import Key

HOW_TO_HASH = "`quire key NAME --append FILE` makes a key and its entry, and `printf %s KEY | sha256sum` hashes one"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_LARGEST = 16 * 2**20
_MOST = 2**53


@dataclass(frozen=True, slots=True)
class _Field:
    """What a field of an entry may be."""

    allowed: str
    fits: Callable[[Any], bool]


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


def _names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) and name.strip() for name in value)


_FIELDS = {
    "sha256": _Field("64 hexadecimal digits", lambda value: isinstance(value, str)),
    "requests_per_minute": _Field("a whole number from 1", _count),
    "tokens_per_minute": _Field("a whole number from 1", _count),
    "concurrency": _Field("a whole number from 1", _count),
    "priority": _Field(
        "a whole number from -1000000 to 1000000",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 10**6,
    ),
    "models": _Field("a list of model names", _names),
    "weight": _Field(
        "a number from 0.001 to 1000",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0.001 <= value <= 1000,
    ),
    "cache_salt": _Field("own or shared", lambda value: value in ("own", "shared")),
    "admin": _Field("true or false", lambda value: isinstance(value, bool)),
}
_LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrency")


def read_keys(path: Path) -> list[Key]:
    """The keys in a file, or a ConfigError that says where it is wrong."""
    source = f"--keys {path}"
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError(f"{source} is larger than {_LARGEST >> 20} MiB; is it a keys file?")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{source} is not UTF-8 text; give a YAML file.") from None
    keys = parse_keys(text, source)
    if not keys:
        raise ConfigError(f"{source} has no keys, so nobody could come in; {HOW_TO_HASH}.")
    return keys


def parse_keys(text: str, source: str) -> list[Key]:
    """The keys in the text of a file that errors call `source`."""
    names: set[str] = set()
    owners: dict[bytes, str] = {}
    keys: list[Key] = []
    for name, value, loader in _entries(text, source):
        line = name.start_mark.line + 1
        key = _Entry(source, name, value, loader).key()
        if key.name in names:
            raise ConfigError(f"{source}, line {line}: the name {key.name!r} is there twice; keep one.")
        if key.digest in owners:
            twin = owners[key.digest]
            raise ConfigError(
                f"{source}, line {line}: {key.name!r} has the same sha256 as {twin!r}; give each its own key."
            )
        names.add(key.name)
        owners[key.digest] = key.name
        keys.append(key)
    return keys


def warning_about(path: Path) -> str | None:
    """What is unwise about who may read or change the file, if anything."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o022:
        return f"--keys {path} can be changed by others than its owner (mode {mode:04o}); run `chmod 600` on it."
    if mode & 0o004:
        return f"--keys {path} can be read by everybody on this machine (mode {mode:04o}); run `chmod 600` on it."
    return None


_Pair = tuple[yaml.Node, yaml.Node, yaml.SafeLoader]


def _entries(text: str, source: str) -> list[_Pair]:
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line} is not valid YAML: {error.problem}.") from None
    except (yaml.YAMLError, RecursionError):
        raise ConfigError(f"{source} is not valid YAML.") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{source} must have a line `name:` for each key with its fields below; {HOW_TO_HASH}.")
    return [(name, value, loader) for name, value in root.value]


class _Entry:
    """One name and its fields, as they stand in the file."""

    def __init__(self, source: str, name: yaml.Node, value: yaml.Node, loader: yaml.SafeLoader) -> None:
        self._source = source
        self._line = name.start_mark.line + 1
        self._name_node = name
        self._value_node = value
        self._loader = loader

    def key(self) -> Key:
        name = self._name()
        values = self._values(name)
        if "sha256" not in values:
            raise self._wrong(name, f"has no sha256; {HOW_TO_HASH}")
        return Key(
            name=name,
            digest=bytes.fromhex(values["sha256"]),
            limits=Limits(**{limit: values.get(limit) for limit in _LIMITS}),
            priority=values.get("priority", 0),
            models=frozenset(values["models"]) if "models" in values else None,
            weight=float(values.get("weight", 1.0)),
            shares_cache=values.get("cache_salt", "own") == "shared",
            admin=values.get("admin", False),
        )

    def _name(self) -> str:
        name = self._name_node.value if isinstance(self._name_node, yaml.ScalarNode) else ""
        if not _NAME.fullmatch(name) or name == DEFAULT_TENANT:
            raise ConfigError(
                f"{self._source}, line {self._line}: a name is made of letters, digits, dots, dashes and "
                f"underscores, 64 at most, and is not {DEFAULT_TENANT!r}."
            )
        return name

    def _values(self, name: str) -> dict[str, Any]:
        if not isinstance(self._value_node, yaml.MappingNode):
            raise self._wrong(name, f"must have fields below it, sha256 at least; {HOW_TO_HASH}")
        values: dict[str, Any] = {}
        for key_node, value_node in self._value_node.value:
            self._line = key_node.start_mark.line + 1
            field = str(key_node.value).replace("-", "_")
            if field in values:
                raise self._wrong(name, f"has {field} twice; keep one")
            values[field] = self._value(name, field, value_node)
        return values

    def _value(self, name: str, field: str, node: yaml.Node) -> Any:
        if field in ("key", "api_key", "secret", "token", "password"):
            raise self._wrong(name, f"holds a plain key as {field}, but only its SHA-256 may be here: {HOW_TO_HASH}")
        if field not in _FIELDS:
            close = did_you_mean(field, _FIELDS)
            raise self._wrong(name, f"has an unknown field {field[:60]!r}.{close} Known are {', '.join(_FIELDS)}")
        if field == "sha256":
            return self._digest(name, node)
        try:
            value = self._loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError):
            value = None
        if not _FIELDS[field].fits(value):
            raise self._wrong(name, f"gives {field} as something else than {_FIELDS[field].allowed}")
        return value

    def _digest(self, name: str, node: yaml.Node) -> str:
        """As text, whatever YAML takes it for: digits alone would be a number."""
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        if not _DIGEST.fullmatch(text):
            # The value is not shown: it may well be the key itself.
            raise self._wrong(name, f"has a sha256 that is not 64 hexadecimal digits; if it is the key: {HOW_TO_HASH}")
        return str(text)

    def _wrong(self, name: str, what: str) -> ConfigError:
        return ConfigError(f"{self._source}, line {self._line}: the entry {name!r} {what}.")
