"""Tools, calls and results in the turns of chat templates that have no place for them."""

from pathlib import Path
from typing import Any

import pytest

from quire.config.parsers import ParserConfig
from quire.core.errors import ConfigError, InvalidRequest
from quire.protocol.parsers.choose import CALL_FORMATS, choose_calls
from quire.text.chat_template import ChatTemplate
from quire.text.load import load_tool_template
from quire.text.template_pool import TemplatePool
from quire.text.tool_template import BUILT_IN, ToolTemplate
from tests.text.templates import CHATML, TOOL

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
SILENT = "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
SHORT = (
    "{% if tools %}T{{ tools | length }}{% elif calls %}C{{ calls[0].name }}"
    "{% else %}R{{ results | join(',') }}{% endif %}"
)
USER = {"role": "user", "content": "Hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "now", "arguments": {"zone": "CET\u2028é"}}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "noon"}


def render(pool: TemplatePool, template: str, messages: list[Any], tools: Any = None, *, text: str = SHORT) -> str:
    shown = ToolTemplate(text, pool, source="test")
    return ChatTemplate({"default": template}, {}, pool, source="test", tool_template=shown).render(
        messages, tools=tools, add_generation_prompt=False
    )


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER], "[system]T1\n[user]Hi\n"),
        ([{"role": "system", "content": "Be brief."}, USER], "[system]Be brief.\n\nT1\n[user]Hi\n"),
        ([{"role": "developer", "content": "Be brief."}, USER], "[developer]Be brief.\n\nT1\n[user]Hi\n"),
        ([USER, ASKED, RESULT], "[system]T1\n[user]Hi\n[assistant]Cnow\n[user]Rnoon\n"),
        ([USER, {**ASKED, "content": "Wait."}, RESULT, RESULT],
         "[system]T1\n[user]Hi\n[assistant]Wait.\n\nCnow\n[user]Rnoon,noon\n"),
        ([USER, ASKED, RESULT, USER, USER], "[system]T1\n[user]Hi\n[assistant]Cnow\n[user]Rnoon\n\nHi\n[user]Hi\n"),
        ([USER, ASKED, {**RESULT, "content": [{"type": "text", "text": "x"}]}, ASKED, RESULT],
         "[system]T1\n[user]Hi\n[assistant]Cnow\n[user]Rx\n[assistant]Cnow\n[user]Rnoon\n"),
    ],
)  # fmt: skip
def test_turns(template_pool: TemplatePool, messages: list[Any], expected: str) -> None:
    assert render(template_pool, PLAIN, messages, [TOOL]) == expected


@pytest.mark.parametrize("template", [NO_SYSTEM, SILENT])
def test_tools_are_the_users_where_templates_show_no_system(template_pool: TemplatePool, template: str) -> None:
    assert render(template_pool, template, [USER, ASKED], [TOOL]) == "[user]T1\n\nHi\n[assistant]Cnow\n"


def test_calls_and_results_are_shown_without_tools_too(template_pool: TemplatePool) -> None:
    assert render(template_pool, PLAIN, [USER, ASKED, RESULT]) == "[user]Hi\n[assistant]Cnow\n[user]Rnoon\n"
    assert render(template_pool, PLAIN, [USER]) == "[user]Hi\n"


def test_a_template_with_a_place_for_tools_shows_them_itself(template_pool: TemplatePool) -> None:
    own = ChatTemplate({"default": CHATML}, {}, template_pool, source="test")
    messages = [USER, ASKED, RESULT]
    assert render(template_pool, CHATML, messages, [TOOL]) == own.render(
        messages, tools=[TOOL], add_generation_prompt=False
    )


def test_the_built_in_one_is_read_as_it_is_written(template_pool: TemplatePool) -> None:
    text = render(template_pool, PLAIN, [USER, ASKED, RESULT], [TOOL, TOOL], text=BUILT_IN)
    assert '\n{"name": "now", "arguments": {"zone": "CET\u2028é"}}\n</tool_call>\n[user]' in text
    assert "[user]The function returned:\nnoon\n" in text
    assert text.count('{"type": "function"') == 2
    assert choose_calls("auto", BUILT_IN) is CALL_FORMATS["hermes"]


def test_what_the_model_is_shown_tells_how_it_writes(template_pool: TemplatePool) -> None:
    shown = ToolTemplate(BUILT_IN, template_pool, source="test")
    template = ChatTemplate({"default": PLAIN}, {}, template_pool, source="test", tool_template=shown)
    assert template.accepts("tools")
    assert template.text == PLAIN
    assert choose_calls("auto", template.signs) is CALL_FORMATS["hermes"]
    without = ChatTemplate({}, {}, template_pool, source="test", tool_template=shown)
    assert not without.accepts("tools")


def test_none_and_files(template_pool: TemplatePool, tmp_path: Path) -> None:
    assert load_tool_template("none", template_pool) is None
    file = tmp_path / "tools.jinja"
    file.write_text(SHORT)
    found = load_tool_template(str(file), template_pool)
    assert found is not None
    assert found.text == SHORT
    file.write_text("{% if %}")
    with pytest.raises(ConfigError, match="does not compile"):
        load_tool_template(str(file), template_pool)
    with pytest.raises(ConfigError, match="cannot read"):
        load_tool_template(str(tmp_path / "absent"), template_pool)


def test_auto_is_for_calls_that_are_read() -> None:
    assert ParserConfig().tools_shown == "auto"
    assert ParserConfig(tool_parser="mistral").tools_shown == "none"
    assert ParserConfig(tool_parser="mistral", tool_template="f.jinja").tools_shown == "f.jinja"


def test_a_template_that_fails_says_so(template_pool: TemplatePool) -> None:
    with pytest.raises(InvalidRequest, match="cannot show these tools"):
        render(template_pool, PLAIN, [USER], [TOOL], text="{{ tools.a.b.c }}")
