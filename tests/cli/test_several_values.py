"""Several values after one option, as users of vLLM write them."""

import pytest

from quire.cli.several_values import joined_values


def test_adapters() -> None:
    given = ["serve", "m", "--lora-modules", "a=x", "b=y", "--port", "1", "--lora-modules", "c=z"]
    expected = ["serve", "m", "--lora-modules", "a=x b=y", "--port", "1", "--lora-modules", "c=z"]
    assert joined_values(given) == expected
    assert joined_values(["plan", "x=y"]) == ["plan", "x=y"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("serve m --served-model-name a b * --port 1", "serve m --served-model-name a,b,* --port 1"),
        ("serve --served-model-name a b --model m", "serve --served-model-name a,b --model m"),
        ("serve --served-model-name a m", "serve --served-model-name a m"),
        ("serve m --served-model-name=a b", "serve m --served-model-name=a b"),
        ("complete m --served-model-name a b", "complete m --served-model-name a b"),
        ("", ""),
    ],
)
def test_names_once_the_model_is_known(given: str, expected: str) -> None:
    """Before that, what follows a name is the model."""
    assert joined_values(given.split()) == expected.split()
