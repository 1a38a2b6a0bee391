"""A conversation fits the context whatever is said; what cannot fit is refused and changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.cli.conversation import Conversation
from quire.core.errors import RequestTooLarge
from quire.text.load import load_chat_template, load_tokenizer
from quire.text.template_pool import TemplatePool

CONTEXT = 200


@pytest.fixture
def conversation(tiny_chat: Path) -> Iterator[Conversation]:
    process = TemplatePool()
    tokenizer = load_tokenizer(tiny_chat)
    template = load_chat_template(tiny_chat, tokenizer, process)
    yield Conversation(template, tokenizer, context=CONTEXT, system="Be brief.")
    process.close()


def test_all_turns_are_in_the_prompt(conversation: Conversation) -> None:
    conversation.ask("one")
    conversation.answer("two")
    conversation.ask("three")
    tokens, forgotten = conversation.prompt(16)
    text = conversation._tokenizer.decode(tokens, skip_special_tokens=False)
    assert forgotten == 0
    assert text.index("Be brief.") < text.index("one") < text.index("two") < text.index("three")


def test_oldest_turns_are_forgotten_and_the_system_message_stays(conversation: Conversation) -> None:
    total = 0
    for number in range(20):
        conversation.ask(f"question {number} " + "word " * 8)
        tokens, forgotten = conversation.prompt(32)
        total += forgotten
        assert len(tokens) + 32 <= CONTEXT
        assert forgotten % 2 == 0
        conversation.answer(f"answer {number}")
    assert total > 0
    assert conversation.turns[0]["role"] == "user"
    assert len(conversation.turns) + total == 40
    assert "Be brief." in conversation._tokenizer.decode(tokens)
    assert "question 19" in conversation.turns[-2]["content"]


def test_a_long_question_gets_what_room_is_left(conversation: Conversation) -> None:
    conversation.ask("hello")
    conversation.answer("hello")
    conversation.ask("x y z " * 25)
    tokens, forgotten = conversation.prompt(150)
    assert forgotten == 2
    assert CONTEXT // 2 < len(tokens) < CONTEXT


def test_a_message_beyond_the_context_is_refused_and_nothing_forgotten(conversation: Conversation) -> None:
    conversation.ask("hello")
    conversation.answer("hello")
    conversation.ask("x y z " * 200)
    with pytest.raises(RequestTooLarge, match="shorten it"):
        conversation.prompt(16)
    assert len(conversation.turns) == 3


def test_taking_back_a_question_takes_its_answer_too(conversation: Conversation) -> None:
    conversation.ask("one")
    conversation.answer("two")
    assert conversation.take_back() == "one"
    assert conversation.take_back() is None
