"""The version that quire tells is the one it is built as."""

import tomllib
from pathlib import Path

from quire.core.version import QUIRE_VERSION

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_package_is_built_as_this_version() -> None:
    assert tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"] == QUIRE_VERSION
