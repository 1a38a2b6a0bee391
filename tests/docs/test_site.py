"""The site of docs builds in strict mode, all its links lead somewhere, and it loads nothing from another machine."""

import re
import tomllib
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.config.fields import field_sections
from quire.observe.catalog import BY_NAME
from scripts._site.__main__ import build
from scripts._site.api_reference import api_reference, public_homes
from scripts._site.links import faults
from scripts._site.metrics_reference import metrics_reference
from scripts._site.settings_reference import settings_reference
from scripts._site.source import read_class
from scripts._site.staging import stage
from scripts._site.tables import cell

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_it_builds_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    assert build(tmp_path / "site") == []
    page = (tmp_path / "site" / "reference" / "settings.html").read_text(encoding="utf-8")
    assert 'id="max-num-seqs"' in page
    assert (tmp_path / "site" / "search.js").is_file(), "the index for pages that are opened as files"
    assert (tmp_path / "site" / "repository" / "benchmarks" / "results" / "peers_x86_64.png").is_file()


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r'= "([\w/]+\.md)"', (DOCS / "zensical.toml").read_text(encoding="utf-8"))
    inside = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted([*inside, "repository/CHANGELOG.md", "repository/CONTRIBUTING.md"])


def test_the_gallery_has_every_picture() -> None:
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    pictures = [*DOCS.glob("images/*"), *ROOT.glob("benchmarks/results/*.png")]
    assert [path.name for path in pictures if f"/{path.name})" not in gallery] == []


def test_references_have_everything_that_the_code_has() -> None:
    settings, metrics, api = settings_reference(), metrics_reference(), api_reference()
    for name in field_sections(EngineConfig):
        assert f'<a id="{name.replace("_", "-")}"></a>' in settings, name
    for name in BY_NAME:
        assert f"| `{name}` |" in metrics, name
    for name, home in public_homes().items():
        assert f"## {name}\n" in api or f"| `{name}` |" in api, name
        assert read_class(ROOT / home, name).text, f"{name} has no docstring"


def test_every_field_of_the_settings_says_what_it_is() -> None:
    rows = re.findall(r"^\| <a.*", settings_reference(), re.MULTILINE)
    assert len(rows) >= len(field_sections(EngineConfig))
    assert [row for row in rows if row.rstrip(" |").endswith("</a>") or "|  |\n" in row] == []


def test_public_classes_explain_their_fields_and_methods() -> None:
    unsaid = []
    for name, home in public_homes().items():
        found = read_class(ROOT / home, name)
        unsaid += [f"{name}.{each.name}" for each in found.fields if not each.text]
        unsaid += [f"{name}.{each.name}" for each in found.methods if not each.text]
    assert unsaid == []


def test_a_broken_link_is_told_with_its_page(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h2 id="here">a</h2><a href="b.html#there">good</a><a href="#here">good</a><a href="b.html#nowhere">bad</a>'
        '<a href="c.html">bad</a><a href="https://example.org/">elsewhere</a><img src="missing.png">',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text(
        '<a id="there" href="a.html">b</a><script src="https://cdn.example/x.js"></script>'
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        encoding="utf-8",
    )
    (tmp_path / "x.css").write_text("a { background: url(https://cdn.example/x.png) }", encoding="utf-8")
    assert faults(tmp_path) == [
        "a.html links to b.html#nowhere, which has no such anchor",
        "a.html links to c.html, which is not there",
        "a.html links to missing.png, which is not there",
        "b.html loads https://cdn.example/x.js from another machine",
        "b.html loads //cdn.example/x.css from another machine",
        "x.css loads something from another machine",
    ]


def test_links_that_leave_docs_lead_to_copies(tmp_path: Path) -> None:
    stage(tmp_path)
    plugins = (tmp_path / "docs" / "plugins.md").read_text(encoding="utf-8")
    assert "](repository/examples/plugins/scheduler/index.md)" in plugins
    shown = (tmp_path / "docs" / "repository" / "examples" / "plugins" / "scheduler" / "index.md").read_text("utf-8")
    assert "## pyproject.toml" in shown
    contributing = (tmp_path / "docs" / "repository" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "](../architecture.md)" in contributing
    assert tomllib.loads((tmp_path / "zensical.toml").read_text(encoding="utf-8"))["project"]["docs_dir"] == "docs"


def test_figures_of_the_readme_are_documented() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = readme.partition("## How fast it is")[2].partition("![")[0]
    rows = [line.split("|")[2:-1] for line in tables.splitlines() if line.startswith("|") and "--" not in line]
    figures = {figure for row in rows for cell in row for figure in re.findall(r"(?<![\w.])\d[\d,.]*\d(?!\w)", cell)}
    documented = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert len(figures) > 20
    assert {each for each in figures if not re.search(rf"(?<![\d,.]){re.escape(each)}(?![\d])", documented)} == set()


def test_cells_keep_code_as_it_is() -> None:
    assert cell("a | b <c> `d | e <f>`\n  g") == r"a \| b &lt;c> `d | e <f>` g"
    assert "| `int | None` | `None` |" in api_reference()
