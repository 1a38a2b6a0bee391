"""Text on every ground it stands on reaches WCAG's AA contrast, in light and in dark."""

import re

import pytest

from quire.observe.theme import theme_css

TEXT_ON = {
    "ink": ("paper", "sheet", "well"),
    "muted": ("paper", "sheet", "well"),
    "accent": ("paper", "sheet"),
    "second": ("paper", "sheet"),
    "bad": ("paper", "sheet"),
    "good": ("paper", "sheet"),
    "on-accent": ("accent",),
}
LEAST_FOR_TEXT = 4.5
LEAST_FOR_SHAPES = 3.0


def colours() -> dict[str, tuple[str, str]]:
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", theme_css())
    return {name: (light, dark) for name, light, dark in found}


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured_as_wcag_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), [(text, ground) for text in TEXT_ON for ground in TEXT_ON[text]])
def test_text_can_be_read(text: str, ground: str, theme: int) -> None:
    known = colours()
    assert contrast(known[text][theme], known[ground][theme]) >= LEAST_FOR_TEXT


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_shapes_can_be_seen(theme: int) -> None:
    known = colours()
    assert contrast(known["edge"][theme], known["sheet"][theme]) >= LEAST_FOR_SHAPES
    for busy in ("used", "shared", *(f"request-{place}" for place in range(8))):
        assert contrast(known[busy][theme], known["free"][theme]) >= LEAST_FOR_SHAPES
