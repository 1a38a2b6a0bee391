"""`quire plugins` lists what installed packages add, and says what is wrong with it."""

import pytest

from quire.cli.main import main
from tests.core.package_shelf import PackageShelf


def test_without_plugins_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    assert "No installed package adds anything to quire" in capsys.readouterr().out


def test_every_plugin_has_a_line_with_its_package_and_whether_it_loads(
    packages: PackageShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.add("good", {"quire.schedulers": {"good": "good:P"}}, "class P: ...")
    packages.add("bad", {"quire.schedulers": {"bad": "bad:P"}}, "1 / 0")
    packages.add("greedy", {"quire.schedulers": {"fcfs": "greedy:P"}})
    packages.add("quill", {"quire.models": {"quill": "quill:P"}}, "class P: ...")
    assert main(["plugins"]) == 1
    models, quill, schedulers, bad, fcfs, good = capsys.readouterr().out.splitlines()
    assert models == "quire.models (version 1): model family"
    assert quill.startswith("  quill  quire-quill 1.5  quill:P  off: a model's files would choose it")
    assert schedulers == "quire.schedulers (version 1): scheduling policy"
    assert "FAILS: the scheduling policy 'bad' of quire-bad 1.5 cannot be used: importing bad threw ZeroDiv" in bad
    assert fcfs == (
        "  fcfs  quire-greedy 1.5  greedy:P  not used: the name is quire's own; its package must choose another"
    )
    assert good == "  good  quire-good 1.5  good:P  loads"


def test_what_is_off_is_not_loaded(packages: PackageShelf, capsys: pytest.CaptureFixture[str]) -> None:
    packages.add("bad", {"quire.schedulers": {"bad": "bad:P"}}, "1 / 0")
    assert main(["plugins", "--plugins", "none"]) == 0
    assert "bad:P  off by --plugins none" in capsys.readouterr().out


def test_the_word_is_read_from_the_environment_too(
    packages: PackageShelf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.add("quill", {"quire.models": {"quill": "quill:P"}}, "class P: ...")
    monkeypatch.setenv("QUIRE_PLUGINS", "all")
    assert main(["plugins"]) == 0
    assert "quill:P  loads" in capsys.readouterr().out
    monkeypatch.setenv("QUIRE_PLUGINS", "quil")
    assert main(["plugins"]) == 2
    assert "--plugins names 'quil', which is no plugin" in capsys.readouterr().err
