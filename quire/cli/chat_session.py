"""One chat: a conversation, how it is sampled, and answers that stream to the terminal."""

import time

from quire.cli.interrupt import Interrupt
from quire.cli.sampling_options import SamplingSettings
from quire.cli.terminal import Terminal
from quire.core.errors import InvalidRequest
from quire.core.outputs import RequestOutput
from quire.engine.conversation import Conversation
from quire.engine.engine import Engine
from quire.engine.stream import TextStream


class ChatSession:
    """What the commands of a chat act on."""

    def __init__(
        self, engine: Engine, conversation: Conversation, sampling: SamplingSettings, terminal: Terminal, name: str
    ) -> None:
        self.conversation = conversation
        self.sampling = sampling
        self.terminal = terminal
        self.name = name
        self.last_rate = ""
        """How fast the last answer came, in words."""
        self._engine = engine

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
        with (
            Interrupt() as interrupt,
            TextStream(self._engine, prompt, sampling.params()) as stream,
            self.terminal.answering(),
        ):
            for piece in stream:
                self.terminal.answer(piece)
                if interrupt.asked:
                    break
        self._note_rate(stream.output, time.perf_counter() - start)
        self._explain_end(stream.output.outputs[0].finish_reason)
        return stream.output.outputs[0].text

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
