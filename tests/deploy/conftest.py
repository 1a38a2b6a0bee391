"""Packages of Node that tests of deploy/ ask: schemas of operators, a linter of compose files."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Node finds them, beside the scripts of `node/`."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is missing (Debian: nodejs, npm), so what they check was not checked")
    found = tmp_path_factory.mktemp("node")
    for file in HERE.iterdir():
        shutil.copyfile(file, found / file.name)
    install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(found)]
    done = subprocess.run(install, capture_output=True, text=True, check=False, cwd=found)
    if done.returncode:
        pytest.skip(f"npm could not install its packages: {done.stderr[-300:]}")
    return found


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
