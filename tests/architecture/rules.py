"""The rules of docs/architecture.md as functions from a parsed package to the lines that break them.

Nothing is imported: every rule reads the syntax tree, so imports inside functions, under TYPE_CHECKING and through
registries count too.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "quire"
REGISTRY_ENTRY = re.compile(rf"{PACKAGE}(\.\w+)+:\w+")
"""How a registry writes what it will import: `quire.ops.triton.rope:launch`."""

ALLOWED_ROOMS: dict[str, frozenset[str]] = {
    room: frozenset(allowed.split())
    for room, allowed in {
        "core": "",
        "spec": "core",
        "config": "core spec",
        "observe": "core config",
        "ops": "core",
        "parallel": "core spec config ops",
        "multimodal": "core config",
        "layers": "core spec config ops parallel",
        "sampling": "core config ops",
        "kvcache": "core spec config ops parallel",
        "scheduler": "core config kvcache",
        "models": "core spec config ops parallel layers multimodal",
        "lora": "core spec config models.loading",
        "worker": "core spec config observe ops parallel layers models lora multimodal sampling kvcache "
        "text.vocabulary_map",
        "executor": "core spec config observe worker",
        "text": "core config models.loading",
        "protocol": "core config sampling.grammar text",
        "engine": "core spec config observe multimodal sampling kvcache scheduler executor models.loading "
        "lora text protocol",
        "serving": "core config observe sampling.beam kvcache scheduler executor models.loading lora text protocol "
        "engine",
        "quantize": "core spec config ops layers models text",
        "simulation": "core spec config kvcache scheduler models.loading engine serving router.choice router.prefix",
        "router": "core config observe protocol serving.routing",
        "server": "core config observe multimodal lora text protocol serving router",
        "bench": "core config observe ops models.loading text engine serving simulation",
        "cli": "core config observe models.loading text protocol engine serving quantize simulation server bench",
    }.items()
}
"""Each room and what it may import besides itself; `models.loading` admits that part of a room alone."""

THIRD_PARTY_HOMES: dict[str, str] = {
    "cyclopts": "cli",
    "fastapi": "server",
    "huggingface_hub": "models.loading",
    "llguidance": "sampling.grammar",
    "matplotlib": "observe",
    "nixl": "kvcache.transfer.nixl_carrier",
    "PIL": "multimodal",
    "opentelemetry": "observe",
    "prometheus_client": "observe",
    "ray": "executor.ray",
    "starlette": "server",
    "transformers": "models.fallback",
    "triton": "ops.triton",
    "uvicorn": "server",
    "xxhash": "kvcache.checksum",
}
"""Libraries that one place may import, and that place."""

CODE_FROM_DATA_LIBRARIES = frozenset({"_pickle", "cloudpickle", "dill", "marshal", "pickle", "shelve"})
CODE_FROM_DATA_NAMES = frozenset(
    {
        *("eval", "exec", "compile", "builtins.eval", "builtins.exec", "builtins.compile"),
        *("torch.load", "torch.serialization.load", "torch.jit.load", "torch.hub.load"),
        *("yaml.Loader", "yaml.UnsafeLoader", "yaml.unsafe_load"),
    }
)
"""Names no module may use, called or handed on; `torch.compile`, `re.compile` and `model.eval` are others."""

TORCH_FREE = ("core", "spec", "config", "scheduler", "kvcache", "models.families")
KVCACHE_WITH_BYTES = ("kvcache.storage", "kvcache.swap", "kvcache.transfer")

VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "misc", "common"})


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file. `name` is dotted, without `.__init__`."""

    name: str
    path: Path
    """Relative to the folder that holds the package."""
    tree: ast.Module
    source: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def is_top(self) -> bool:
        return self.name in (PACKAGE, f"{PACKAGE}.__main__")

    @property
    def place(self) -> str:
        """The name inside the package: `kvcache.manager` for `quire.kvcache.manager`."""
        return self.name.removeprefix(PACKAGE).removeprefix(".")

    @property
    def room(self) -> str:
        return self.place.partition(".")[0]

    def at(self, line: int, message: str) -> str:
        return f"{self.path.as_posix()}:{line}: {message}"


@dataclass(frozen=True, slots=True)
class Import:
    """One name that one line imports: a module where there is such a module, else `module.attribute`."""

    target: str
    line: int


@dataclass(frozen=True, slots=True)
class Package:
    """Every module below `<root>/quire`, by dotted name."""

    modules: dict[str, Module]

    def imports(self, module: Module) -> Iterator[Import]:
        """All imports of a module; those from quire itself are cut back to the module they reach."""
        for target, line in _imported_names(module):
            yield Import(self._module_part(target), line)

    def _module_part(self, target: str) -> str:
        """`quire.core.errors` for `quire.core.errors.QuireError`; names of other libraries stay whole."""
        parent = target.rpartition(".")[0]
        return parent if _within(target, PACKAGE) and target not in self.modules and parent in self.modules else target


def read_package(root: Path) -> Package:
    modules = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        relative = path.relative_to(root)
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        source = path.read_text(encoding="utf-8")
        modules[name] = Module(name, relative, ast.parse(source, filename=str(relative)), source)
    return Package(modules)


def _within(name: str, prefix: str) -> bool:
    """Whether a dotted name is the prefix or lies below it."""
    return name == prefix or name.startswith(f"{prefix}.")


@cache
def _imported_names(module: Module) -> list[tuple[str, int]]:
    return list(_find_imported_names(module))


def _find_imported_names(module: Module) -> Iterator[tuple[str, int]]:
    constants = _string_constants(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            source = _source_of(node, module)
            for alias in node.names:
                yield source if alias.name == "*" else f"{source}.{alias.name}", node.lineno
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("import_module", "__import__"):
            names = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            yield from ((str(name), node.lineno) for name in names)
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            text = _text_of(node, constants)
            if REGISTRY_ENTRY.fullmatch(text):
                yield text.partition(":")[0], node.lineno


def _source_of(node: ast.ImportFrom, module: Module) -> str:
    """The absolute name of what stands between `from` and `import`."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _string_constants(tree: ast.Module) -> dict[str, str]:
    """Plain strings that a module assigns to names at its top."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _text_of(node: ast.expr, constants: dict[str, str]) -> str:
    """The text of a string or of an f-string over the module's constants; what is not known leaves nothing."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part, constants) for part in node.values)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
        return constants.get(node.value.id, "")
    return ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# --- rules -----------------------------------------------------------------------------------------------------------


def imports_follow_the_table(package: Package) -> list[str]:
    found = []
    for module in package.modules.values():
        if module.is_top:
            continue
        if module.room not in ALLOWED_ROOMS:
            found.append(module.at(1, f"{module.room!r} is not a room of the table"))
            continue
        allowed = ALLOWED_ROOMS[module.room] | {module.room}
        for imported in package.imports(module):
            if not _within(imported.target, PACKAGE):
                continue
            place = imported.target.removeprefix(PACKAGE).removeprefix(".")
            if not any(_within(place, prefix) for prefix in allowed):
                found.append(module.at(imported.line, f"{module.room} may not import {imported.target}"))
    return found


def modules_have_no_cycles(package: Package) -> list[str]:
    """Names one cycle, when there is any."""
    graph = {
        module.name: {imported.target for imported in package.imports(module) if imported.target in package.modules}
        for module in package.modules.values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        # graphlib walks from what is imported to what imports it.
        return [f"import cycle: {' -> '.join(reversed(cycle))}"]
    return []


def third_parties_stay_home(package: Package) -> list[str]:
    found = []
    for module in package.modules.values():
        for imported in package.imports(module):
            library = imported.target.partition(".")[0]
            home = THIRD_PARTY_HOMES.get(library)
            if home is not None and not _within(module.place, home):
                found.append(module.at(imported.line, f"{library} is imported only in {PACKAGE}.{home}"))
    return found


def inits_are_empty(package: Package) -> list[str]:
    return [
        module.at(1, "an __init__ other than the top one is empty")
        for module in package.modules.values()
        if module.is_package and not module.is_top and module.source.strip()
    ]


def names_say_something(package: Package) -> list[str]:
    return [
        module.at(1, f"a module is not called {name!r}; name it after what it holds")
        for module in package.modules.values()
        for name in module.name.split(".")
        if name in VAGUE_NAMES
    ]


def data_never_becomes_code(package: Package) -> list[str]:
    found = []
    for module in package.modules.values():
        for imported in package.imports(module):
            library = imported.target.partition(".")[0]
            if library in CODE_FROM_DATA_LIBRARIES:
                found.append(module.at(imported.line, f"{library} turns data into code"))
            elif imported.target in CODE_FROM_DATA_NAMES:
                found.append(module.at(imported.line, f"{imported.target} turns data into code"))
        aliases = _aliases(module)
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.Name, ast.Attribute)):
                name = _full_name(node, aliases)
                if name in CODE_FROM_DATA_NAMES and isinstance(node.ctx, ast.Load):
                    found.append(module.at(node.lineno, f"{name} turns data into code"))
    return found


def _aliases(module: Module) -> dict[str, str]:
    """What each imported name of a module stands for: `t` for `torch` after `import torch as t`."""
    aliases: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            aliases.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom):
            source = _source_of(node, module)
            aliases.update({alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names})
    return aliases


def _full_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """The dotted name an expression spells, aliases followed; empty when it is no plain dotted name."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def modules_have_docstrings(package: Package) -> list[str]:
    return [
        module.at(1, "a module starts with a docstring: what it owns and what it must not know")
        for module in package.modules.values()
        if (module.is_top or not module.is_package) and not ast.get_docstring(module.tree)
    ]


def bookkeeping_knows_no_torch(package: Package) -> list[str]:
    return [
        module.at(imported.line, f"{PACKAGE}.{module.place} must not know torch")
        for module in torch_free_modules(package)
        for imported in package.imports(module)
        if _within(imported.target, "torch")
    ]


def torch_free_modules(package: Package) -> list[Module]:
    """The rooms, and the parts of rooms, that work on plain numbers."""
    return [
        module
        for module in package.modules.values()
        if any(_within(module.place, place) for place in TORCH_FREE)
        and not any(_within(module.place, place) for place in KVCACHE_WITH_BYTES)
    ]


Rule = Callable[[Package], list[str]]

RULES: tuple[Rule, ...] = (
    imports_follow_the_table,
    modules_have_no_cycles,
    third_parties_stay_home,
    inits_are_empty,
    names_say_something,
    data_never_becomes_code,
    modules_have_docstrings,
    bookkeeping_knows_no_torch,
)


# --- the table in the documentation ----------------------------------------------------------------------------------


def table_in(markdown: str) -> dict[str, frozenset[str]]:
    """The import table of docs/architecture.md: the first fenced block below its heading, cells two spaces apart."""
    block = re.search(r"^#+ Who may import whom.*?^```text\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)
    if block is None:
        return {}
    text = re.sub(r"(\w+)\((\w+) only\)", r"\1.\2", block[1])
    cells = [cell for line in text.splitlines() for cell in re.split(r"\s{2,}", line.strip()) if cell]
    pairs = [cell.partition(":") for cell in cells]
    return {room: frozenset(allowed.split()) - {"–"} for room, _, allowed in pairs}
