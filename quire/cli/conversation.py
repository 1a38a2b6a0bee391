"""A conversation that always fits the context: the oldest turns are forgotten when it gets too long."""

from collections.abc import Iterator

from quire.core.errors import RequestTooLarge
from quire.text.chat_template import ChatTemplate
from quire.text.room import room_for_prompt
from quire.text.tokenizer import Tokenizer

Message = dict[str, str]


class Conversation:
    """Who said what. The last message is the user's while an answer is on its way."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, *, context: int, system: str | None) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._context = context
        self.system = system
        self.turns: list[Message] = []
        """User and assistant by turns, the system message not included."""
        self.rendered = ""
        """The last prompt, as text."""

    def messages(self) -> list[Message]:
        return [*self._system(), *self.turns]

    def ask(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        self.turns.append({"role": "assistant", "content": text})

    def take_back(self) -> str | None:
        """Forget the last question and its answer; returns the question."""
        while self.turns:
            message = self.turns.pop()
            if message["role"] == "user":
                return message["content"]
        return None

    def clear(self) -> None:
        self.turns.clear()

    def prompt(self, max_tokens: int | None) -> tuple[list[int], int]:
        """Tokens to answer to, and how many old messages were forgotten to leave room for `max_tokens`."""
        room = room_for_prompt(self._context, max_tokens)
        starts = [place for place, message in enumerate(self.turns) if message["role"] == "user"]
        tokens: list[int] = []
        for start in starts:
            tokens = self._tokens(self.turns[start:])
            # the last question alone may leave less: a shorter answer than asked for is better than none
            if len(tokens) <= room or (start == starts[-1] and len(tokens) < self._context):
                del self.turns[:start]
                return tokens, start
        raise RequestTooLarge(
            f"the message makes a prompt of {len(tokens):,} tokens and the context holds {self._context:,}; shorten it",
            field="messages",
        )

    def _tokens(self, turns: list[Message]) -> list[int]:
        self.rendered = self._template.render([*self._system(), *turns])
        # the template wrote the special tokens itself
        return self._tokenizer.encode(self.rendered, add_special_tokens=False)

    def _system(self) -> Iterator[Message]:
        if self.system:
            yield {"role": "system", "content": self.system}
