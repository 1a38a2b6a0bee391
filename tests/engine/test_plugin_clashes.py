"""A plugin that wants a name of quire's own is never used in silence."""

import logging

import pytest

from quire.core.errors import PluginError
from quire.core.plugins import GROUPS, permit
from quire.engine.own_names import own_names
from quire.engine.plugin_clashes import check_clashes
from tests.core.package_shelf import PackageShelf


def test_who_names_it_is_refused_and_who_allows_all_is_told(
    packages: PackageShelf, caplog: pytest.LogCaptureFixture
) -> None:
    packages.add("greedy", {"quire.schedulers": {"fcfs": "greedy:P"}, "quire.models": {"llama": "greedy:P"}})
    check_clashes()
    permit("all")
    with caplog.at_level(logging.WARNING):
        check_clashes()
    assert "the scheduling policy 'fcfs' of quire-greedy 1.5 has a name of quire's own, and is not used" in caplog.text
    assert "the model family 'llama' of quire-greedy 1.5" in caplog.text
    permit("quire-greedy")
    with pytest.raises(PluginError, match=r"'llama' of quire-greedy 1.5 has a name of quire's own; leave it out"):
        check_clashes()


def test_quires_own_names_are_known() -> None:
    some = {"quire.models": "llama", "quire.formats": "awq", "quire.schedulers": "fair", "quire.parsers": "hermes"}
    some["quire.proposers"] = "ngram"
    for group in GROUPS:
        assert some.get(group) is None or some[group] in own_names(group)
