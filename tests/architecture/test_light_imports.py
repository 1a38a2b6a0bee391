"""Bookkeeping and the command line start without torch and numpy, seen in fresh interpreters."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import rules

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy")
REQUIRED = ("kvcache.manager", "scheduler.scheduler")

IMPORT_ALL = "import importlib\nfor name in sys.argv[1:]: importlib.import_module(name)"
IMPORT_UNTIL_HEAVY = f"""
import importlib
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert not sys.modules.keys() & set({HEAVY}), name
"""
RUN_HELP = """
from quire.cli.main import main
sys.argv = ["quire", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


def heavy_modules_after(code: str, *arguments: str) -> list[str]:
    """Runs code in a fresh interpreter and returns which heavy libraries it left loaded."""
    report = f"\nprint()\nprint('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", f"import sys\n{code}{report}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    label, *loaded = done.stdout.splitlines()[-1].split()
    assert label == "loaded:"
    return loaded


@cache
def package() -> rules.Package:
    return rules.read_package(ROOT)


@cache
def torch_free_modules() -> list[rules.Module]:
    return list(rules.torch_free_modules(package()))


def torch_free_names(place: str) -> list[str]:
    return [module.name for module in torch_free_modules() if f"{module.place}.".startswith(f"{place}.")]


def test_heavy_modules_are_noticed() -> None:
    assert heavy_modules_after("import numpy") == ["numpy"]


@pytest.mark.parametrize("place", REQUIRED)
def test_required_module_is_there(place: str) -> None:
    assert f"quire.{place}" in torch_free_names(place.partition(".")[0])


def test_importing_bookkeeping_loads_nothing_heavy() -> None:
    """All rooms in one interpreter, which stops at the first module that brings something heavy."""
    names = [name for room in rules.TORCH_FREE for name in torch_free_names(room)]
    assert heavy_modules_after(IMPORT_UNTIL_HEAVY, *names) == []


def test_help_loads_nothing_heavy() -> None:
    assert heavy_modules_after(RUN_HELP) == []


def test_a_front_loads_nothing_heavy() -> None:
    """It talks to clients and to engines; tensors are the engines'."""
    modules = [module.name for module in package().modules.values() if module.place.startswith(("server.", "serving."))]
    fronts = [name for name in modules if not name.endswith(("serving.child", "serving.runner"))]
    assert "quire.server.run" in fronts
    assert heavy_modules_after(IMPORT_ALL, *fronts) == []


def test_an_engine_loads_torch_only_when_a_model_needs_it() -> None:
    assert "torch" not in heavy_modules_after(IMPORT_ALL, "quire.serving.runner", "quire.worker.start_core_worker")
    assert "torch" not in heavy_modules_after(IMPORT_ALL, "quire.worker.core_worker", "quire.engine.start")


def test_engines_begin_before_the_server_is_imported() -> None:
    """What `quire serve` runs first brings nothing of what it imports while engines import their own modules."""
    code = "import sys, quire.cli.serve, quire.server.run\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "quire.serving.begun_engines" in loaded
    assert not loaded & {"quire.server.front", "quire.serving.async_llm", "zmq", "starlette", "prometheus_client"}


def test_no_process_of_a_server_looks_up_installed_packages() -> None:
    """That brings parsers of mails and archives, which take longer to import than most of quire."""
    code = "import sys, quire.server.front, quire.server.app, quire.serving.runner\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "importlib.metadata" not in done.stdout.split()
