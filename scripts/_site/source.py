"""What a Python file says about its classes, read from its text: fields and methods with the strings under them."""

import ast
from dataclasses import dataclass
from pathlib import Path

_WIDEST_SIGNATURE = 88
"""Columns; a longer one has a line for each parameter."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class."""

    name: str
    type: str
    default: str
    """As the source writes it; empty where there is none."""
    text: str


@dataclass(frozen=True, slots=True)
class Method:
    """One method or property."""

    name: str
    signature: str
    text: str
    is_property: bool


@dataclass(frozen=True, slots=True)
class ClassSource:
    """One class, without what begins with an underscore."""

    name: str
    bases: tuple[str, ...]
    text: str
    fields: tuple[Field, ...]
    methods: tuple[Method, ...]
    constructor: str
    """The signature of its own `__init__`; empty where fields make it."""


def read_class(path: Path, name: str) -> ClassSource:
    """The class called `name` in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    own_init = [_signature(each, name) for each in functions if each.name == "__init__"]
    public = [each for each in functions if not each.name.startswith("_")]
    return ClassSource(
        name=name,
        bases=tuple(ast.unparse(base) for base in node.bases),
        text=ast.get_docstring(node) or "",
        fields=tuple(_fields(node)),
        methods=tuple(_method(each) for each in public),
        constructor=own_init[0] if own_init else "",
    )


def _fields(node: ast.ClassDef) -> list[Field]:
    found = []
    for place, each in enumerate(node.body):
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name) or each.target.id[0] == "_":
            continue
        after = node.body[place + 1] if place + 1 < len(node.body) else None
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            text = after.value.value
        default = "" if each.value is None else ast.unparse(each.value)
        found.append(Field(each.target.id, ast.unparse(each.annotation), default, " ".join(text.split())))
    return found


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Method:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    is_property = bool(decorators & {"property", "cached_property"})
    return Method(node.name, _signature(node, node.name), ast.get_docstring(node) or "", is_property)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, shown: str) -> str:
    """`name(a, b=1) -> c`, without self or cls."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [_parameter(each, default) for each, default in zip(positional, defaults, strict=True)]
    if positional and positional[0].arg in ("self", "cls"):
        parts = parts[1:]
    if arguments.vararg is not None:
        parts.append("*" + _parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [_parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        parts.append("**" + _parameter(arguments.kwarg, None))
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {ast.unparse(node.returns)}"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{prefix}{shown}({', '.join(parts)}){returns}"
    if len(line) <= _WIDEST_SIGNATURE:
        return line
    return f"{prefix}{shown}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg if argument.annotation is None else f"{argument.arg}: {ast.unparse(argument.annotation)}"
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}"
