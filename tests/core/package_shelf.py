"""A folder of installed packages with entry points, as pip would leave them; tests fill it."""

from collections.abc import Mapping
from pathlib import Path

API = "QUIRE_PLUGIN_API = 1\n"


class PackageShelf:
    """On the path of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(
        self, module: str, points: Mapping[str, Mapping[str, str]], code: str = "", *, api: str = API, package: str = ""
    ) -> None:
        """A package of one module; `points` are its entry points by group."""
        package = package or f"quire-{module}"
        (self._folder / f"{module}.py").write_text(api + code)
        info = self._folder / f"{package.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        lines = [
            line
            for group, names in points.items()
            for line in (f"[{group}]", *(f"{name} = {place}" for name, place in names.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
