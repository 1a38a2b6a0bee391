"""Every block of README and docs is run, or a comment before it says why it cannot be."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, Block, blocks_of
from tests.docs.reader import Reader

BLOCKS = {page: blocks_of(page) for page in PAGES}
MOST_EXCUSES = 4
LANGUAGES = {"bash", "console", "json", "python", "text", "yaml"}
IN_QUIRE = {"quire"}
"""What pages may import without a line that installs it."""


def all_blocks() -> list[Block]:
    return [block for blocks in BLOCKS.values() for block in blocks]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages(*, slow: bool) -> list[Path]:
    """Those with something to run; where it is slow, those with a block that is."""
    kept = {page: [block for block in blocks if block.excuse is None] for page, blocks in BLOCKS.items()}
    return [page for page, blocks in kept.items() if any(block.is_slow or not slow for block in blocks)]


def follow(page: Path, folder: Path, *, slow: bool) -> None:
    with Reader(folder) as reader:
        for block in BLOCKS[page]:
            if block.excuse is None and (slow or not block.is_slow):
                reader.follow(block)


@pytest.mark.parametrize("page", pages(slow=False), ids=name)
def test_blocks_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(slow=True), ids=name)
def test_blocks_run_with_those_that_take_longer(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path, slow=True)


def test_every_fence_is_a_block_in_a_language_that_is_run() -> None:
    for page, blocks in BLOCKS.items():
        fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks), name(page)
    assert {block.language for block in all_blocks()} <= LANGUAGES


def test_few_blocks_are_excused_and_each_says_why() -> None:
    excused = [block for block in all_blocks() if block.excuse is not None]
    assert len(excused) <= MOST_EXCUSES, [block.place for block in excused]
    for block in excused:
        assert block.excuse is not None
        assert len(block.excuse.split()) >= 4, block.place
    for page, blocks in BLOCKS.items():
        written = re.findall(r"^<!-- slow -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(written) == sum(block.is_slow for block in blocks), (
            f"{name(page)}: a remark is not right before its block"
        )
    remarks = {block.place: block.remark for block in all_blocks() if block.excuse is None}
    assert set(remarks.values()) <= {"", "slow"}, remarks


def test_readme_installs_what_pages_import() -> None:
    """The environment of the tests has more than the one that `scripts/serve` makes."""
    installed = {
        word
        for block in BLOCKS[ROOT / "README.md"]
        for line in re.findall(r"^pip install (.*)", block.text, re.MULTILINE)
        for word in line.split()
    }
    for block in all_blocks():
        if block.language == "python":
            nodes = list(ast.walk(ast.parse(block.text)))
            names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
            names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
            imported = {each.partition(".")[0] for each in names} - sys.stdlib_module_names
            assert imported <= installed | IN_QUIRE, block.place


def test_a_block_that_fails_is_told_with_its_place(tmp_path: Path) -> None:
    block = Block(ROOT / "README.md", 7, "python", "raise SystemExit('no good')", "")
    with Reader(tmp_path) as reader, pytest.raises(AssertionError, match=r"README\.md:7: exit code 1\n\nno good"):
        reader.follow(block)
    wrong = {"bash": "false\ntrue", "yaml": "alice: {}", "console": "$ echo a\nb", "text": "$ ls"}
    for language, text in wrong.items():
        with Reader(_fresh(tmp_path, language)) as reader, pytest.raises(AssertionError, match=r"README\.md:7"):
            reader.follow(Block(ROOT / "README.md", 7, language, text, ""))


def _fresh(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path
