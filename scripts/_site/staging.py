"""The folder that the site is built from: docs, files of the repository that pages link to, and generated references.

Pages are written for readers of the repository, so they link to files outside docs by relative paths. Those files come
to the site too: Markdown as a page, a folder as a page that shows its files, anything else as it is.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from scripts._site.api_reference import api_reference
from scripts._site.metrics_reference import metrics_reference
from scripts._site.settings_reference import settings_reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG = "zensical.toml"
REPOSITORY = "repository"
"""The folder of the site with what lies outside docs."""
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages of the navigation that lie outside docs."""
GENERATORS: dict[str, Callable[[], str]] = {
    "api": api_reference,
    "metrics": metrics_reference,
    "settings": settings_reference,
}
_MARK = re.compile(r"^<!-- site: (\w+) -->\n(?:.+\n)*", re.MULTILINE)
"""Where a reference goes; the paragraph after it is for readers of the repository."""
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_CODE = re.compile(r"`[^`\n]+`")
"""In a table GitHub wants the bars of code escaped, and Python-Markdown shows the backslashes."""
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".sh": "bash"}


def stage(folder: Path) -> None:
    """Fill an empty folder with the configuration and everything that the site shows."""
    _Stage(folder / "docs").fill()
    shutil.copyfile(DOCS / CONFIG, folder / CONFIG)


class _Stage:
    """Copies what pages need, each thing once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: set[Path] = set()

    def fill(self) -> None:
        for path in sorted(DOCS.rglob("*")):
            if path.is_file() and path.name != CONFIG:
                self._bring(path)
        for name in ALWAYS:
            self._bring(ROOT / name)

    def _bring(self, source: Path) -> Path:
        """Where a file or folder of the repository is in the site's sources; it is copied there first."""
        target = self._place(source)
        if source in self._done:
            return target
        self._done.add(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            target.write_text(_folder_page(source), encoding="utf-8")
            for project in source.glob("*/pyproject.toml"):
                self._bring(project.parent)
        elif source.suffix == ".md":
            target.write_text(self._page(source, target), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
        return target

    def _place(self, source: Path) -> Path:
        if source.is_relative_to(DOCS):
            return self._folder / source.relative_to(DOCS)
        place = self._folder / REPOSITORY / source.relative_to(ROOT)
        return place / "index.md" if source.is_dir() else place

    def _page(self, source: Path, target: Path) -> str:
        text = _MARK.sub(lambda mark: GENERATORS[mark[1]]() + "\n", source.read_text(encoding="utf-8"))
        pieces = _FENCE.split(text)
        words = [_CODE.sub(lambda code: code[0].replace(r"\|", "|"), piece) for piece in pieces[::2]]
        pieces[::2] = [_LINK.sub(lambda link: self._link(link, source, target), piece) for piece in words]
        return "".join(pieces)

    def _link(self, link: re.Match[str], source: Path, target: Path) -> str:
        opening, address, rest = link.groups()
        if re.match(r"[a-z]+:", address):
            return link[0]
        linked = (source.parent / address).resolve()
        if not linked.exists() or not linked.is_relative_to(ROOT):
            return link[0]  # the build tells that it is broken
        relative = os.path.relpath(self._bring(linked), target.parent)
        return f"{opening}{relative}{rest}"


def _folder_page(folder: Path) -> str:
    """The text of every file in a folder; of a folder of projects, its own files and a list of the projects."""
    projects = sorted(path.parent for path in folder.glob("*/pyproject.toml"))
    files = sorted(path for path in (folder.glob("*") if projects else folder.rglob("*")) if _is_shown(path))
    parts = [f"# {folder.relative_to(ROOT)}", *(f"- [{each.name}]({each.name}/index.md)" for each in projects)]
    for path in files:
        text = path.read_text(encoding="utf-8").rstrip()
        parts.append(f"## {path.relative_to(folder)}")
        parts.append(f"````{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n````")
    return "\n\n".join(parts) + "\n"


def _is_shown(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.stat().st_size > 0
