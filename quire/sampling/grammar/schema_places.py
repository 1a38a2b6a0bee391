"""Where schemas stand within a JSON schema: a property that is called like a keyword is not mistaken for one."""

from collections.abc import Callable, Iterator
from typing import Any

_ONE = frozenset(
    {
        *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"),
        *("propertyNames", "not", "if", "then", "else", "contentSchema"),
    }
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def schemas(root: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, outermost first, with its pointer. No recursion: clients nest as they like."""
    level: list[tuple[str, object]] = [("", root)]
    while level:
        inner: list[tuple[str, object]] = []
        for pointer, schema in level:
            if isinstance(schema, dict):
                yield pointer, schema
                inner += _within(pointer, schema)
        level = inner


def changed(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema with every schema in it changed, innermost first."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _LISTS and isinstance(value, list):
            found[keyword] = [changed(each, change) for each in value]
        elif keyword in _BY_NAME and isinstance(value, dict):
            found[keyword] = {name: changed(each, change) for name, each in value.items()}
        else:
            found[keyword] = changed(value, change) if keyword in _ONE else value
    return change(found)


def resolved(schema: Any, root: Any) -> Any:
    """What a reference within the document stands for, as long as nothing stands beside it; else the schema itself."""
    for _ in range(8):
        match schema:
            case {"$ref": str(reference)} if len(schema) == 1 and reference.startswith("#"):
                schema = _at(root, reference[1:])
            case _:
                break
    return schema


def escaped(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def parts(pointer: str) -> list[str]:
    """The names that a JSON pointer is made of."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _at(root: Any, pointer: str) -> Any:
    for part in parts(pointer):
        if isinstance(root, list) and part.isdecimal() and int(part) < len(root):
            root = root[int(part)]
        elif isinstance(root, dict) and part in root:
            root = root[part]
        else:
            return True
    return root


def _within(pointer: str, schema: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for keyword, value in schema.items():
        here = f"{pointer}/{escaped(keyword)}"
        if keyword in _LISTS and isinstance(value, list):
            yield from ((f"{here}/{place}", each) for place, each in enumerate(value))
        elif keyword in _BY_NAME and isinstance(value, dict):
            yield from ((f"{here}/{escaped(name)}", each) for name, each in value.items())
        elif keyword in _ONE:
            yield here, value
