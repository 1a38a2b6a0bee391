"""Every kernel of every instruction set this machine has, against plain code, under the address and undefined behaviour
sanitizers. The tests themselves are C++ (`native/`), so that nothing but the kernels is watched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).parent / "native"


def _tool(name: str) -> str | None:
    """The environment's own, or else the system's."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))} exited with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.mark.slow  # it builds all kernels anew, which takes minutes
def test_kernels_pass_under_the_sanitizers(tmp_path: Path) -> None:
    cmake = _tool("cmake")
    if cmake is None or not any(_tool(compiler) for compiler in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        pytest.skip("building the kernels takes CMake and a C++ compiler")
    _run(cmake, "-S", NATIVE, "-B", tmp_path, "-DQUIRE_SANITIZE=ON", *_generator())
    _run(cmake, "--build", tmp_path, "--parallel", str(os.cpu_count()))
    lines = _run(tmp_path / "test_kernels").splitlines()
    assert any(line.startswith("portable: 0 of ") for line in lines), lines


def _generator() -> list[str]:
    ninja = _tool("ninja")
    return [] if ninja is None else ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
