"""Prompts equal those of `transformers`, and every way to go wrong has its own kind of error."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers

from quire.core.errors import ConfigError, InvalidRequest
from quire.text.chat_template import ChatTemplate
from quire.text.template_pool import TemplatePool
from tests.text.templates import CHATML, CONVERSATIONS, LLAMA3, MISTRAL, TEMPLATES, TOOL
from tests.text.vocabularies import write_folder

TOKENS = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
USER = [{"role": "user", "content": "Hi"}]

EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without a prompt": {"add_generation_prompt": False},
    "tools": {"tools": [TOOL, TOOL]},
    "no tools": {"tools": []},
    "documents": {"documents": [{"title": "one", "text": " first "}, {"title": "two", "text": "second"}]},
    "a variable": {"variables": {"date_string": "1 May 2020", "enable_thinking": False}},
    "another bos": {"variables": {"bos_token": "<other>"}},
}


def template_of(process: TemplatePool, source: str, **more: str) -> ChatTemplate:
    return ChatTemplate({"default": source, **more}, TOKENS, process, source="test")


@pytest.fixture(scope="module")
def oracle(transformers: Any, byte_level: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = write_folder(tmp_path_factory.mktemp("oracle"), byte_level, **TOKENS)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_prompts_equal_transformers(
    source: str, messages: list[Any], extra: dict[str, Any], template_pool: TemplatePool, oracle: Any
) -> None:
    theirs = {"add_generation_prompt": True, **extra}
    variables = theirs.pop("variables", {})
    expected = oracle.apply_chat_template(messages, chat_template=source, tokenize=False, **theirs, **variables)
    assert template_of(template_pool, source).render(messages, **extra) == expected


CONTINUED: dict[str, list[dict[str, Any]]] = {
    "text": [*USER, {"role": "assistant", "content": "Sure, "}],
    "text with spaces around": [*USER, {"role": "assistant", "content": " well \n"}],
    "nothing yet": [*USER, {"role": "assistant", "content": ""}],
    "twice the same": [*USER, {"role": "assistant", "content": "Hi"}],
}


@pytest.mark.parametrize("messages", CONTINUED.values(), ids=CONTINUED)
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_continued_prompts_equal_transformers(
    source: str, messages: list[Any], template_pool: TemplatePool, oracle: Any
) -> None:
    expected = oracle.apply_chat_template(messages, chat_template=source, tokenize=False, continue_final_message=True)
    got = template_of(template_pool, source).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert got == expected


def test_content_in_parts_is_continued_too(template_pool: TemplatePool, oracle: Any) -> None:
    parts = [{"type": "image"}, {"type": "text", "text": "It is a"}]
    messages: list[dict[str, Any]] = [*USER, {"role": "assistant", "content": parts}]
    expected = oracle.apply_chat_template(messages, chat_template=LLAMA3, tokenize=False, continue_final_message=True)
    template = template_of(template_pool, LLAMA3)
    got = template.render(messages, add_generation_prompt=False, continue_final_message=True)
    assert got == expected
    assert got.endswith("It is a")
    assert parts[1]["text"] == "It is a"


@pytest.mark.parametrize(
    ("source", "content"), [(CHATML, None), (CHATML, [{"type": "image"}]), ("{{ messages[0].content }}", "gone")]
)
def test_what_cannot_be_continued_is_refused(source: str, content: Any, template_pool: TemplatePool) -> None:
    messages = [*USER, {"role": "assistant", "content": content}]
    with pytest.raises(InvalidRequest) as caught:
        template_of(template_pool, source).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert caught.value.field == "continue_final_message"


def test_tools_pick_their_own_template(template_pool: TemplatePool) -> None:
    template = template_of(template_pool, "plain", tool_use="with {{ tools | length }}", rag="rag {{ documents }}")
    assert template.render(USER) == "plain"
    assert template.render(USER, tools=[TOOL]) == "with 1"
    assert template.render(USER, tools=[TOOL], name="default") == "plain"
    assert template.render(USER, name="rag") == "rag None"
    with pytest.raises(InvalidRequest, match=r"no chat template called 'tool_used'.*Did you mean 'tool_use'"):
        template.render(USER, name="tool_used")


def test_variables_a_template_looks_at(template_pool: TemplatePool) -> None:
    template = template_of(template_pool, CHATML, rag="{{ documents }}")
    assert template.accepts("tools")
    assert template.accepts("documents")
    assert not template.accepts("documents", "default")
    assert not template.accepts("nothing")


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt"])
def test_variables_do_not_replace_fields(name: str, template_pool: TemplatePool) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        template_of(template_pool, CHATML).render(USER, variables={name: []})
    assert caught.value.field == "chat_template_kwargs"


def test_no_template_says_how_to_give_one(template_pool: TemplatePool) -> None:
    with pytest.raises(InvalidRequest, match=r"base-model has no chat template.*--chat-template FILE"):
        ChatTemplate({}, TOKENS, template_pool, source="base-model").render(USER)


def test_broken_template_is_known_at_once(template_pool: TemplatePool) -> None:
    with pytest.raises(ConfigError, match=r"'default' of test does not compile at line 3: .*endfor"):
        template_of(template_pool, "{% for x in messages %}\n\n{% endif %}")


def test_what_the_template_refuses_is_the_request_s_fault(template_pool: TemplatePool) -> None:
    with pytest.raises(InvalidRequest, match=r"roles must alternate.*\(line 10 of the template\)") as caught:
        template_of(template_pool, MISTRAL).render([*USER, *USER])
    assert caught.value.field == "messages"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n{{ messages[0].content.text.more }}", r"no attribute 'text' \(line 2"),
        ("\n\n{{ 'a' + 1 }}", r"concatenate.*\(line 3"),
        ("{% include 'other' %}", "no loader"),
    ],
)
def test_a_conversation_that_does_not_fit_is_refused(source: str, message: str, template_pool: TemplatePool) -> None:
    with pytest.raises(InvalidRequest, match=message):
        template_of(template_pool, source).render(USER)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ namespace(__init__=1) }}",
        "{% set n = namespace() %}{% set n.__class__ = 1 %}",
        "{{ raise_exception.__globals__.os }}",
    ],
)
def test_reaching_out_of_the_sandbox_is_the_template_s_fault(source: str, template_pool: TemplatePool) -> None:
    with pytest.raises(ConfigError, match="may not do"):
        template_of(template_pool, source).render(USER)


@pytest.mark.parametrize(
    ("messages", "options"),
    [
        ([], {}),
        (["Hi"], {}),
        (USER, {"continue_final_message": True}),
        ([{"role": "user", "content": "\ud83d"}], {}),
        ([{"role": "user", "content": object()}], {}),
        ([{"role": "user", "content": 1 << 80}], {}),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    messages: Any, options: dict[str, Any], template_pool: TemplatePool
) -> None:
    with pytest.raises(InvalidRequest):
        template_of(template_pool, CHATML).render(messages, **options)


def test_a_role_of_the_models_own_is_taken_where_it_is_shown(template_pool: TemplatePool) -> None:
    said = [{"role": "critic", "content": " Too long.\n"}]
    shows = template_of(template_pool, "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% endfor %}")
    assert shows.render(said) == "[critic]Too long."
    knows_others = template_of(template_pool, "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    with pytest.raises(InvalidRequest, match="shows nothing of what 'critic' says"):
        knows_others.render([*USER, *said])
    with pytest.raises(InvalidRequest, match="shows nothing of what 'critic' says"):
        knows_others.render([*USER, {"role": "critic", "content": USER[0]["content"]}])  # another turn says that
    assert knows_others.render([*USER, {"role": "system", "content": "Be brief."}]) == USER[0]["content"]
    as_json = template_of(template_pool, "{% for m in messages %}[{{ m.role }}]{{ m.content | tojson }}{% endfor %}")
    assert as_json.render([{"role": "ipython", "content": '{"temp": 42}\n'}]) == '[ipython]"{\\"temp\\": 42}\\n"'


def test_messages_are_left_as_they_were(template_pool: TemplatePool) -> None:
    messages = [*USER, {"role": "assistant", "content": "x", "reasoning": "y"}]
    template_of(template_pool, CHATML).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert messages[1] == {"role": "assistant", "content": "x", "reasoning": "y"}


def test_file_layout_matches(tmp_path: Path, template_pool: TemplatePool) -> None:
    """Spaces and lines around blocks vanish as `transformers` has them vanish."""
    source = "  {% if true %}\n  a\n  {% endif %}\n\tb\n{# gone #}\n"
    assert template_of(template_pool, source).render(USER) == "  a\n\tb\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'x' in messages[1].content }}", "False"),
        ("{% if messages[1]['content'] is none %}only calls{% endif %}", "only calls"),
    ],
)
def test_a_message_of_nothing_but_calls_has_the_content_its_template_looks_for(
    source: str, expected: str, template_pool: TemplatePool
) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    template = template_of(template_pool, source)
    assert template.render(messages) == expected
    assert template.text == source
