"""Every rule can fail: each is shown small packages that break it, and packages that only look as if they did."""

from pathlib import Path

import pytest

from tests.architecture import rules

DOC = '"""A module."""\n'


def package_of(root: Path, files: dict[str, str]) -> rules.Package:
    """Writes a package of the given files; every folder gets an empty `__init__` unless one is given."""
    for name, source in {"__init__.py": DOC, **files}.items():
        path = root / "quire" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    for folder in {path.parent for path in (root / "quire").rglob("*.py")} - {root / "quire"}:
        (folder / "__init__.py").touch()
    return rules.read_package(root)


OFFENDERS = {
    # The import table.
    "import upwards": (
        rules.imports_follow_the_table,
        {"core/a.py": "import quire.config.b"},
        "quire/core/a.py:1: core may not import quire.config.b",
    ),
    "from import of a name": (
        rules.imports_follow_the_table,
        {"scheduler/a.py": "from quire.worker.b import Worker", "worker/b.py": DOC},
        "scheduler may not import quire.worker.b",
    ),
    "from import of a room": (
        rules.imports_follow_the_table,
        {"core/a.py": "from quire import config", "config/b.py": DOC},
        "core may not import quire.config",
    ),
    "relative import": (
        rules.imports_follow_the_table,
        {"core/a.py": "from ..config import b", "config/b.py": DOC},
        "core may not import quire.config.b",
    ),
    "import inside a function": (
        rules.imports_follow_the_table,
        {"core/a.py": "def f():\n    from quire.engine.b import x"},
        "quire/core/a.py:2: core may not import quire.engine.b",
    ),
    "import under TYPE_CHECKING": (
        rules.imports_follow_the_table,
        {"core/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import quire.ops.b"},
        "quire/core/a.py:3: core may not import quire.ops.b",
    ),
    "import by a string": (
        rules.imports_follow_the_table,
        {"core/a.py": "import importlib\nx = importlib.import_module('quire.ops.b')"},
        "core may not import quire.ops.b",
    ),
    "import by an entry of a registry": (
        rules.imports_follow_the_table,
        {"core/a.py": "places = {'x': 'quire.ops.b:launch'}"},
        "core may not import quire.ops.b",
    ),
    "import by an entry built from a constant": (
        rules.imports_follow_the_table,
        {"core/a.py": "HOME = 'quire.ops'\nplaces = {'x': f'{HOME}.b:launch'}"},
        "quire/core/a.py:2: core may not import quire.ops.b",
    ),
    "part of a room that is not open": (
        rules.imports_follow_the_table,
        {"engine/a.py": "import quire.models.llama", "models/llama.py": DOC},
        "engine may not import quire.models.llama",
    ),
    "room of which only a part is open": (
        rules.imports_follow_the_table,
        {"engine/a.py": "import quire.models", "models/llama.py": DOC},
        "engine may not import quire.models",
    ),
    "name that only starts like the open part": (
        rules.imports_follow_the_table,
        {"engine/a.py": "import quire.models.loading_other", "models/loading_other.py": DOC},
        "engine may not import quire.models.loading_other",
    ),
    "import of the public API from a room": (
        rules.imports_follow_the_table,
        {"cli/a.py": "from quire import LLM"},
        "cli may not import quire",
    ),
    "room that is not in the table": (
        rules.imports_follow_the_table,
        {"attic/a.py": DOC},
        "'attic' is not a room of the table",
    ),
    # Cycles.
    "cycle of two inside a room": (
        rules.modules_have_no_cycles,
        {"core/a.py": "import quire.core.b", "core/b.py": "import quire.core.a"},
        "import cycle: quire.core.",
    ),
    "cycle of three through a function and TYPE_CHECKING": (
        rules.modules_have_no_cycles,
        {
            "core/a.py": "from quire.core.b import x",
            "core/b.py": "def f():\n    from .c import x",
            "core/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from quire.core import a",
        },
        "import cycle: quire.core.",
    ),
    # Borders of libraries.
    **{
        f"{library} away from home": (
            rules.third_parties_stay_home,
            {"worker/a.py": f"def f():\n    import {library}.sub"},
            f"quire/worker/a.py:2: {library} is imported only in quire.{home}",
        )
        for library, home in rules.THIRD_PARTY_HOMES.items()
    },
    "triton elsewhere in ops": (
        rules.third_parties_stay_home,
        {"ops/reference/a.py": "from triton import language"},
        "triton is imported only in quire.ops.triton",
    ),
    "ray elsewhere in executor": (
        rules.third_parties_stay_home,
        {"executor/process.py": "import ray"},
        "ray is imported only in quire.executor.ray",
    ),
    "hub elsewhere in models": (
        rules.third_parties_stay_home,
        {"models/llama.py": "import huggingface_hub"},
        "huggingface_hub is imported only in quire.models.loading",
    ),
    # Files.
    "import in an __init__": (
        rules.inits_are_empty,
        {"core/__init__.py": "from quire.core.a import x", "core/a.py": DOC},
        "quire/core/__init__.py:1: an __init__ other than the top one is empty",
    ),
    "docstring in an __init__ further down": (
        rules.inits_are_empty,
        {"models/loading/__init__.py": DOC},
        "quire/models/loading/__init__.py:1",
    ),
    **{
        f"module called {name}": (rules.names_say_something, {f"core/{name}.py": DOC}, f"not called {name!r}")
        for name in sorted(rules.VAGUE_NAMES)
    },
    "folder called utils": (rules.names_say_something, {"core/utils/a.py": DOC}, "not called 'utils'"),
    "module without a docstring": (
        rules.modules_have_docstrings,
        {"core/a.py": "# Only a comment.\nx = 1\n"},
        "quire/core/a.py:1: a module starts with a docstring",
    ),
    "top without a docstring": (rules.modules_have_docstrings, {"__init__.py": ""}, "quire/__init__.py:1"),
    # Data that becomes code.
    **{
        f"{library} imported": (
            rules.data_never_becomes_code,
            {"core/a.py": f"def f():\n    from {library} import loads"},
            f"quire/core/a.py:2: {library} turns data into code",
        )
        for library in sorted(rules.CODE_FROM_DATA_LIBRARIES)
    },
    **{
        f"{name} called": (
            rules.data_never_becomes_code,
            {"core/a.py": f"{name}('x')"},
            f"quire/core/a.py:1: {name} turns data into code",
        )
        for name in sorted(rules.CODE_FROM_DATA_NAMES)
    },
    "eval handed on": (rules.data_never_becomes_code, {"core/a.py": "map(eval, [])"}, "eval turns data into code"),
    "torch.load under another name": (
        rules.data_never_becomes_code,
        {"worker/a.py": "import torch as t\nt.load('x')"},
        "quire/worker/a.py:2: torch.load turns data into code",
    ),
    "torch.load from its module": (
        rules.data_never_becomes_code,
        {"worker/a.py": "from torch import serialization as s\ns.load('x')"},
        "torch.serialization.load turns data into code",
    ),
    "load imported from torch": (
        rules.data_never_becomes_code,
        {"worker/a.py": "from torch import load"},
        "torch.load turns data into code",
    ),
    # Torch.
    **{
        f"torch in {place}": (
            rules.bookkeeping_knows_no_torch,
            {f"{place}.py": "def f():\n    from torch import nn"},
            f"quire/{place}.py:2: quire.{place.replace('/', '.')} must not know torch",
        )
        for place in (
            "core/a",
            "config/a",
            "scheduler/a",
            "scheduler/policies/a",
            "kvcache/manager",
            "kvcache/swapping",
        )
    },
}

INNOCENTS = {
    "rooms as the table has them": {
        "core/a.py": DOC + "from quire.core import b",
        "core/b.py": DOC,
        "scheduler/a.py": DOC + "from quire.kvcache.manager import Manager\nfrom ..core.a import x",
        "kvcache/manager.py": DOC,
    },
    "the open part of models": {
        "engine/a.py": DOC + "from quire.models import loading\nfrom quire.models.loading.gguf import read",
        "models/loading/gguf.py": DOC,
    },
    "the top imports anything": {"__init__.py": DOC + "from quire.engine.llm import LLM", "engine/llm.py": DOC},
    "libraries at home": {
        "ops/triton/a.py": DOC + "import triton",
        "executor/ray.py": DOC + "import ray",
        "server/openai/a.py": DOC + "import fastapi, starlette.requests, uvicorn",
        "observe/metrics.py": DOC + "import prometheus_client\nfrom opentelemetry import trace",
        "observe/plots.py": DOC + "import matplotlib.pyplot",
        "models/loading/hub.py": DOC + "import huggingface_hub",
        "cli/main.py": DOC + "import cyclopts",
    },
    "names that only resemble forbidden ones": {
        "worker/a.py": DOC + "import re, torch\nre.compile('x')\ntorch.compile(f)\nmodel.eval()\njson.load(f)\n",
        "core/commons.py": DOC,
        "core/torchlike.py": DOC + "import torchlike\nx = 'see quire.ops.b:launch'",
    },
    "torch where bytes live": {
        "kvcache/storage.py": DOC + "import torch",
        "kvcache/swap.py": DOC + "import torch",
        "kvcache/transfer/nixl.py": DOC + "import torch",
    },
}


@pytest.mark.parametrize(("rule", "files", "expected"), OFFENDERS.values(), ids=OFFENDERS)
def test_rule_reports_the_offender(tmp_path: Path, rule: rules.Rule, files: dict[str, str], expected: str) -> None:
    found = rule(package_of(tmp_path, files))
    assert any(expected in line for line in found), found


@pytest.mark.parametrize("files", INNOCENTS.values(), ids=INNOCENTS)
def test_rules_leave_the_innocent_alone(tmp_path: Path, files: dict[str, str]) -> None:
    package = package_of(tmp_path, files)
    assert [line for rule in rules.RULES for line in rule(package)] == []


def test_every_rule_has_an_offender() -> None:
    assert {rule for rule, _, _ in OFFENDERS.values()} == set(rules.RULES)


def test_cycle_is_reported_in_the_order_of_the_imports(tmp_path: Path) -> None:
    files = {f"core/{a}.py": f"import quire.core.{b}" for a, b in ("ab", "bc", "ca")}
    (found,) = rules.modules_have_no_cycles(package_of(tmp_path, files))
    edges = set(zip(found.split()[2::2], found.split()[4::2], strict=False))
    assert edges == {(f"quire.core.{a}", f"quire.core.{b}") for a, b in ("ab", "bc", "ca")}


def test_torch_free_modules_leave_out_those_with_bytes(tmp_path: Path) -> None:
    names = ("core/a", "worker/a", "kvcache/manager", "kvcache/storage", "kvcache/transfer/a")
    package = package_of(tmp_path, {f"{name}.py": DOC for name in names})
    found = {module.place for module in rules.torch_free_modules(package) if not module.is_package}
    assert found == {"core.a", "kvcache.manager"}


def test_table_is_read_from_markdown() -> None:
    table = "a: –    b: a\nc: a b(part only)"
    text = f"# Map\n```text\nno: table\n```\n### Who may import whom (really)\n```text\n{table}\n```\n"
    assert rules.table_in(text) == {"a": frozenset(), "b": frozenset("a"), "c": frozenset({"a", "b.part"})}


def test_missing_table_is_no_table() -> None:
    assert rules.table_in("# Map\n\nno table here\n") == {}
