"""The sdist has what a wheel is built of, and nothing else."""

import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from quire.core.version import QUIRE_VERSION

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by the backend itself, as pip would call it."""
    folder = tmp_path_factory.mktemp("sdist")
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / f"quire-{QUIRE_VERSION}.tar.gz"


def test_it_is_fit_to_be_published(sdist: Path, wheel_script: ModuleType) -> None:
    wheel_script.check_sdist(sdist)


def test_it_has_every_file_of_the_package(sdist: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "quire"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if not tracked:
        pytest.skip("this tree is no clone, so nobody says which files belong to it")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in tracked if name not in names and (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("left_out", "added", "expected"),
    [
        ("SECURITY.md", None, r"lacks \['SECURITY.md'\] and should not have \[\]"),
        (None, "tests/test_big.py", r"lacks \[\] and should not have \['tests'\]"),
        (None, "quire/ops/cpu/_core.abi3.so", r"holds compiled files, quire/ops/cpu/_core.abi3.so among them"),
        ("quire/ops/cpu/csrc/module.cpp", None, r"has no sources of the native core"),
    ],
)
def test_others_are_refused(
    tmp_path: Path, wheel_script: ModuleType, left_out: str | None, added: str | None, expected: str
) -> None:
    names = {*(wheel_script.SDIST_HOLDS - {"quire"}), "quire/__init__.py", "quire/ops/cpu/csrc/module.cpp"}
    names = (names | ({added} if added else set())) - {left_out}
    path = tmp_path / "quire-9.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in sorted(names):
            archive.addfile(tarfile.TarInfo(f"quire-9/{name}"))
    with pytest.raises(wheel_script.Unfit, match=expected):
        wheel_script.check_sdist(path)
