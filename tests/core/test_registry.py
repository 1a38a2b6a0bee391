"""Registries import what they name only when it is asked for."""

import pytest

from quire.core.errors import ConfigError
from quire.core.registry import Registry


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


def test_a_plugin_may_add_but_not_replace():
    registry: Registry[object] = Registry("thing", {})
    registry.register("fraction", "fractions:Fraction")
    with pytest.raises(ConfigError, match="already registered at fractions:Fraction"):
        registry.register("fraction", "elsewhere:Fraction")
