"""The start-up table."""

from io import StringIO

from rich.console import Console

from quire.config.resolved import Choice
from quire.observe.choices import choices_table, choices_text


def test_every_choice_is_a_row_as_it_is() -> None:
    out = StringIO()
    choices = [Choice("dtype", "bfloat16", "the checkpoint's own"), Choice("name", "[red]x[/red]", "[0] is no markup")]
    Console(file=out, width=100).print(choices_table(choices))
    page = out.getvalue()
    for choice in choices:
        assert any(choice.name in line and choice.value in line and choice.reason in line for line in page.splitlines())


def test_a_log_gets_plain_text() -> None:
    text = choices_text([Choice("dtype", "bfloat16", "the checkpoint's own")])
    assert "\x1b" not in text
    assert any("dtype" in line and "the checkpoint's own" in line for line in text.splitlines())
