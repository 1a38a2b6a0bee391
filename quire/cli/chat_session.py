"""One chat: a conversation, how it is sampled, and answers that stream to the terminal."""

import time

from quire.cli.conversation import Conversation
from quire.cli.interrupt import Interrupt
from quire.cli.sampling_options import SamplingSettings
from quire.cli.terminal import Terminal
from quire.core.errors import InvalidRequest
from quire.core.message import AnswerMessage
from quire.core.outputs import RequestOutput
from quire.engine.engine import Engine
from quire.engine.stream import TextStream
from quire.protocol.parsers.parts import Part, add_parts
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.style import AnswerStyle
from quire.protocol.parsers.tools import Tools


class ChatSession:
    """What the commands of a chat act on."""

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        style: AnswerStyle,
        sampling: SamplingSettings,
        terminal: Terminal,
        name: str,
    ) -> None:
        self.conversation = conversation
        self.sampling = sampling
        self.terminal = terminal
        self.name = name
        self.last_rate = ""
        """How fast the last answer came, in words."""
        self._engine = engine
        self._style = style

    def reply(self, text: str, sampling: SamplingSettings | None = None) -> None:
        """Answer a message; one that cannot be answered leaves the conversation as it was."""
        sampling = sampling or self.sampling
        before = list(self.conversation.turns)
        self.conversation.ask(text)
        try:
            prompt, forgotten = self.conversation.prompt(sampling.max_tokens)
            if forgotten:
                self.terminal.say(
                    f"(The conversation is longer than the context; its {forgotten} oldest messages are forgotten.)"
                )
            said = self._stream(prompt, sampling)
        except InvalidRequest:
            self.conversation.turns[:] = before
            raise
        self.conversation.answer(said)

    def _stream(self, prompt: list[int], sampling: SamplingSettings) -> str:
        start = time.perf_counter()
        reading, params = self._style.prepare(
            self.conversation.rendered, sampling.params(), Tools(), ReasoningOptions()
        )
        parser, said = reading.parser(0), AnswerMessage()
        with (
            Interrupt() as interrupt,
            TextStream(self._engine, prompt, params) as stream,
            self.terminal.answering(),
        ):
            for piece in stream:
                self._show(parser.push(piece), said)
                if interrupt.asked:
                    break
            self._show(parser.finish(), said)
        self._note_rate(stream.output, time.perf_counter() - start)
        self._explain_end(stream.output.outputs[0].finish_reason)
        return said.content

    def _show(self, parts: list[Part], said: AnswerMessage) -> None:
        add_parts(said, parts)
        for part in parts:
            if part.kind == "reasoning":
                self.terminal.think(part.text)
            elif part.kind == "content":
                self.terminal.answer(part.text)
            else:
                self.terminal.call(part.text, begins=part.kind == "call")

    def _note_rate(self, output: RequestOutput, seconds: float) -> None:
        answered = len(output.outputs[0].token_ids)
        self.last_rate = (
            f"{len(output.prompt_token_ids):,} tokens read, {answered:,} written in {seconds:.1f} s "
            f"({answered / max(seconds, 1e-9):,.1f} a second)"
        )

    def _explain_end(self, reason: str | None) -> None:
        if reason == "abort":
            self.terminal.say("(Stopped.)\n")
        elif reason == "length":
            self.terminal.say("(Cut off: the answer reached max_tokens or the end of the context; see /params.)\n")
        elif reason != "stop":
            self.terminal.say(f"(The answer ended early: {reason}.)\n")
