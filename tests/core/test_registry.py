"""Registries import what they name only when it is asked for."""

from fractions import Fraction

import pytest

from quire.core.errors import ConfigError
from quire.core.registry import Registry
from tests.core.package_shelf import PackageShelf


def test_lookup_imports_the_creator():
    registry: Registry[object] = Registry("thing", {"fraction": "fractions:Fraction"})
    assert registry.get("fraction")(1, 2) * 2 == 1
    assert list(registry) == ["fraction"]


def test_an_unknown_name_suggests_the_nearest():
    registry: Registry[object] = Registry("thing", {"fraction": "fractions:Fraction", "other": "nowhere:Nothing"})
    with pytest.raises(
        ConfigError, match=r"unknown thing 'fracton'; known are fraction, other. Did you mean 'fraction'\?"
    ):
        registry.get("fracton")


def test_a_plugin_may_add_but_not_replace(packages: PackageShelf):
    packages.add(
        "thirds", {"quire.schedulers": {"third": "thirds:Third", "fraction": "thirds:Third"}}, "class Third: ..."
    )
    registry: Registry[object] = Registry("policy", {"fraction": "fractions:Fraction"}, "quire.schedulers")
    assert registry.get("third").__name__ == "Third"
    assert registry.get("fraction") is Fraction
    assert "third" in registry
    assert "fourth" not in registry
    assert list(registry) == ["fraction"]
    with pytest.raises(ConfigError, match=r"unknown policy 'thrid'; known are fraction, third. Did you mean 'third'"):
        registry.get("thrid")
