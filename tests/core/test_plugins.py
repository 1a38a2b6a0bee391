"""Plugins are found without being run, loaded when they are asked for, and told apart from what is quire's own."""

import sys

import pytest

from quire.core.errors import ConfigError, PluginError
from quire.core.plugins import (
    GROUPS,
    check_known,
    check_permission,
    check_versions,
    clashes,
    find_plugin,
    find_plugins,
    load_plugin,
    loaded_versions,
    permission,
    permit,
)
from tests.core.package_shelf import PackageShelf

SCHEDULERS, MODELS = "quire.schedulers", "quire.models"


def test_looking_for_plugins_runs_none_of_their_code(packages: PackageShelf) -> None:
    packages.add("loud", {SCHEDULERS: {"loud": "loud:Loud"}}, "raise RuntimeError('I was run')")
    [found] = find_plugins(SCHEDULERS)
    assert (found.name, found.origin, found.place) == ("loud", "quire-loud 1.5", "loud:Loud")
    check_known(SCHEDULERS, "--scheduling-policy", "loud", ("fcfs",))
    assert "loud" not in sys.modules


def test_a_plugin_that_throws_is_named_and_spoils_no_other(packages: PackageShelf) -> None:
    packages.add("loud", {SCHEDULERS: {"loud": "loud:Loud"}}, "import quire_needs_this")
    packages.add("rude", {SCHEDULERS: {"rude": "rude:Rude"}}, "raise SystemExit(3)")
    packages.add("calm", {SCHEDULERS: {"calm": "calm:Calm"}}, "class Calm: ...")
    with pytest.raises(PluginError, match=r"scheduling policy 'loud' of quire-loud 1.5 cannot be used: importing loud"):
        load_plugin(SCHEDULERS, "loud")
    with pytest.raises(PluginError, match=r"importing rude threw SystemExit: 3"):
        load_plugin(SCHEDULERS, "rude")
    assert getattr(load_plugin(SCHEDULERS, "calm"), "__name__", "") == "Calm"
    assert load_plugin(SCHEDULERS, "absent") is None


@pytest.mark.parametrize(
    ("place", "api", "why"),
    [
        ("odd:Odd", "", "odd does not say QUIRE_PLUGIN_API, and this quire has version 1 of quire.schedulers"),
        ("odd:Odd", "QUIRE_PLUGIN_API = 2\n", "odd says QUIRE_PLUGIN_API = 2, and this quire has version 1"),
        ("odd:Even", "QUIRE_PLUGIN_API = 1\n", "odd has no Even"),
        ("odd", "QUIRE_PLUGIN_API = 1\n", "its entry point is 'odd', and must be module:attribute"),
    ],
)
def test_what_does_not_fit_is_told(packages: PackageShelf, place: str, api: str, why: str) -> None:
    packages.add("odd", {SCHEDULERS: {"odd": place}}, "class Odd: ...", api=api)
    with pytest.raises(PluginError, match=why):
        load_plugin(SCHEDULERS, "odd")


@pytest.mark.parametrize(
    ("word", "used"),
    [
        (None, {"lottery"}),
        ("named", {"lottery"}),
        ("all", {"lottery", "quill"}),
        ("none", set()),
        ("quire-both", {"lottery", "quill"}),
        ("quill", {"quill"}),
        ("lottery, quill", {"lottery", "quill"}),
    ],
)
def test_the_operator_says_what_may_be_used(packages: PackageShelf, word: str | None, used: set[str]) -> None:
    packages.add("both", {SCHEDULERS: {"lottery": "both:P"}, MODELS: {"quill": "both:P"}}, "class P: ...")
    permit(word)
    found = [find_plugin(SCHEDULERS, "lottery"), find_plugin(MODELS, "quill")]
    assert {plugin.name for plugin in found if plugin is not None and plugin.may_be_used} == used


def test_what_is_kept_out_says_how_it_comes_in(packages: PackageShelf) -> None:
    packages.add("both", {MODELS: {"quill": "both:P"}}, "class P: ...")
    with pytest.raises(PluginError, match=r"'quill' is a plugin of quire-both 1.5, which --plugins named keeps out"):
        load_plugin(MODELS, "quill")
    assert "both" not in sys.modules


@pytest.mark.parametrize("word", ["", ",", "a,,b"])
def test_a_word_that_says_nothing_is_refused(packages: PackageShelf, word: str) -> None:
    with pytest.raises(ConfigError, match=r"--plugins is .* named, all, none, or names of packages or plugins"):
        check_permission(word)


def test_names_that_nothing_has_are_refused(packages: PackageShelf) -> None:
    with pytest.raises(ConfigError, match=r"'lotery', which is no plugin: no installed package has any"):
        check_permission("lotery")
    packages.add("lottery", {SCHEDULERS: {"lottery": "lottery:P"}})
    with pytest.raises(ConfigError, match=r"there are quire-lottery, lottery"):
        permit("lotery")
    assert permission() == "named"


def test_two_packages_cannot_have_one_name(packages: PackageShelf) -> None:
    for module in ("first", "second"):
        packages.add(module, {SCHEDULERS: {"lottery": f"{module}:P"}})
    with pytest.raises(PluginError, match=r"'lottery' is in several packages: quire-first 1.5, quire-second 1.5"):
        load_plugin(SCHEDULERS, "lottery")


def test_names_of_quires_own_are_clashes(packages: PackageShelf) -> None:
    packages.add("greedy", {SCHEDULERS: {"fcfs": "greedy:P", "other": "greedy:P"}})
    assert [plugin.name for plugin in clashes(SCHEDULERS, ("fcfs", "fair"))] == ["fcfs"]


def test_a_typo_in_a_setting_names_what_there_is(packages: PackageShelf) -> None:
    packages.add("lottery", {SCHEDULERS: {"lottery": "lottery:P"}})
    with pytest.raises(ConfigError, match=r"--x is 'lotery', but it must be one of fcfs, lottery. Did you mean 'lott"):
        check_known(SCHEDULERS, "--x", "lotery", ("fcfs",))


def test_every_group_of_the_issue_is_there() -> None:
    kinds = ("models", "formats", "schedulers", "logits_processors", "parsers", "proposers", "devices")
    assert list(GROUPS) == [f"quire.{kind}" for kind in kinds]


def test_ranks_have_the_versions_of_the_first(packages: PackageShelf) -> None:
    packages.add("lottery", {SCHEDULERS: {"lottery": "lottery:P"}}, "class P: ...")
    assert loaded_versions() == {}
    load_plugin(SCHEDULERS, "lottery")
    assert loaded_versions() == {"quire-lottery": "1.5"}
    check_versions({"quire-lottery": "1.5"})
    with pytest.raises(PluginError, match=r"rank 0 uses plugins of quire-lottery 1.6, and this host has 1.5"):
        check_versions({"quire-lottery": "1.6"})
    with pytest.raises(PluginError, match=r"quire-absent 1.0, and this host has none; install the same on all hosts"):
        check_versions({"quire-absent": "1.0"})
