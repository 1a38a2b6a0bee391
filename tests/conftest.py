"""A tiny model and Hypothesis profiles for the whole suite; `scripts/test` chooses one through HYPOTHESIS_PROFILE.

How long an example takes is never an error: test machines are shared, and speed is measured elsewhere. Without a GPU,
kernels run in Triton's interpreter, which must be known when they are defined: before any test file is imported.
"""

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from quire.text.template_pool import TemplatePool
from tests.core.package_shelf import PackageShelf
from tests.tiny_chat import write_tiny_chat

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile(
    "default",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "slow",
    max_examples=2000,
    deadline=None,
    derandomize=False,  # said outright: on machines that look like CI, Hypothesis would repeat the same examples
    print_blob=True,  # these runs are random: a failure prints what reproduces it
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logged travels from its process to the one that reports, which half a surrogate pair cannot."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat(tmp_path_factory.mktemp("tiny") / "tiny-chat")


@pytest.fixture(scope="session")
def template_pool() -> Iterator[TemplatePool]:
    process = TemplatePool()
    yield process
    process.close()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageShelf]:
    """A shelf for installed packages on the path; its modules and what was permitted are forgotten afterwards."""
    before, folder = set(sys.modules), tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("QUIRE_PLUGINS", "all")  # so that whatever a test permits is taken back
    monkeypatch.delenv("QUIRE_PLUGINS")
    yield PackageShelf(folder)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
