"""The pages of --help and --help-all."""

import re
from collections.abc import Callable
from dataclasses import fields

import pytest

from quire.cli.help_page import USUAL_SETTINGS
from quire.cli.main import main
from quire.config.bounds import flag
from quire.config.engine import EngineConfig
from quire.config.fields import field_sections, section_types

Page = Callable[..., str]


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Page:
    def printed(*tokens: str, columns: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(tokens) == 0
        return capsys.readouterr().out

    return printed


def flags(text: str) -> list[str]:
    return re.findall(r"^│ (?:MODEL )?(--[a-z-]+)", text, re.MULTILINE)


def test_serve_shows_about_a_dozen_options_that_are_settings(page: Page) -> None:
    shown = flags(page("serve", "--help"))
    assert shown == flags(page("serve", "-h"))
    assert shown[0] == "--config"
    assert set(shown[1:]) == {flag(name) for name in USUAL_SETTINGS}
    assert len(shown) <= 16
    assert set(field_sections(EngineConfig)) >= USUAL_SETTINGS


def test_the_last_line_counts_what_is_left_out(page: Page) -> None:
    left = sum(len(fields(section)) for section in section_types(EngineConfig).values()) - len(USUAL_SETTINGS)
    assert page("serve", "--help").splitlines()[-1] == f"--help-all shows {left} settings more."
    assert "--help-all" not in page("serve", "--help-all")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_descriptions_fill_the_width(page: Page, columns: int) -> None:
    lines = page("serve", "--help-all", columns=columns).splitlines()
    assert max(map(len, lines)) == columns
    *_, description = re.findall(r"│ --cpu-threads INT +(.*?)│ --", " ".join(lines))
    assert "for each physical core that quire may use" in " ".join(description.replace("│", " ").split())


def test_options_of_a_command_are_not_taken_for_settings(page: Page) -> None:
    text = page("bench", "serve", "--help")
    assert {"--url", "--model", "--api-key"} <= set(flags(text))
    assert "Usual settings" not in text


def test_help_comes_before_mistakes_in_options_but_not_in_commands(
    page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    assert page("serve", "--port", "many", "--help").startswith("Usage: quire serve")
    assert main(["serv", "--help"]) == 2
    assert 'Did you mean "serve"?' in capsys.readouterr().err
