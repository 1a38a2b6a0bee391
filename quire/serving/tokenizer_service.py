"""TokenizerService: a model's tokenizer and chat template, kept off a server's event loop where they take long."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from quire.config.parsers import ParserConfig
from quire.core.errors import Overloaded
from quire.models.loading.sentence_settings import SentenceSettings, read_sentence_settings
from quire.protocol.parsers.style import AnswerStyle
from quire.text.chat_template import ChatTemplate
from quire.text.load import load_chat_template, load_tokenizer
from quire.text.pairs import PairFrame
from quire.text.reranker_prompt import reranker_frame
from quire.text.template_pool import SIZE, TemplatePool
from quire.text.tokenizer import Tokenizer

_SHORT = 2048
"""Characters that are tokenized in place: it takes less than a hop to a thread and back."""
_AT_ONCE = 64
"""Texts that are tokenized in one go."""
_THREADS = 4
MOST_WAITING = 64
"""Grammars that may wait to be checked, one after the other; each takes about a second at most."""
_T = TypeVar("_T")


class TokenizerService:
    """Tokenizing and templates of one model."""

    def __init__(
        self,
        path: Path,
        template_file: Path | None,
        parsers: ParserConfig,
    ) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(path)
        self._parsers = parsers
        self._style: AnswerStyle | None = None
        self.settings: SentenceSettings = read_sentence_settings(path)
        """How the model was trained to embed and score texts."""
        self._frame: PairFrame | None = None
        self._path = path
        self._template_file = template_file
        self._renderers = TemplatePool()
        self._template: ChatTemplate | None = None
        self._loading = Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="quire-text")
        self._rendering = ThreadPoolExecutor(SIZE, thread_name_prefix="quire-template")
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="quire-grammar")
        self._num_waiting = 0
        if template_file is not None or parsers.tool_template not in ("auto", "none"):
            self.load_template()  # what is wrong with a file that was named is known before anything is served

    def load_template(self) -> ChatTemplate:
        """Compile the template, in a process of its own. Called in a thread, or before serving."""
        with self._loading:
            if self._template is None:
                self._template = load_chat_template(
                    self._path,
                    self.tokenizer,
                    self._renderers,
                    file=self._template_file,
                    tools=self._parsers.tools_shown,
                )
        return self._template

    def begin_template(self) -> None:
        """Load the template while other things are done; whoever needs it hears what is wrong with it."""
        self._rendering.submit(self.load_template)

    async def style(self) -> AnswerStyle:
        """How the model writes its answers."""
        if self._style is None:
            template = await _in(self._rendering, self.load_template)
            self._style = AnswerStyle(template.signs, self.tokenizer, self._parsers)
        return self._style

    async def template_text(self) -> str:
        """The chat template itself; empty where the model has none."""
        return (await _in(self._rendering, self.load_template)).text

    async def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The prompt for a conversation; options as `ChatTemplate.render` takes them."""
        return await _in(self._rendering, lambda: self.load_template().render(messages, **options))

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return (await self.encode_batch([text], add_special_tokens=add_special_tokens))[0]

    async def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """The ids of each text. A few at a time, so that others have their turn and whoever stops waiting ends it."""
        encode = partial(self.tokenizer.encode_batch, add_special_tokens=add_special_tokens)
        if sum(map(len, texts)) <= _SHORT:
            return encode(texts)
        found: list[list[int]] = []
        for start in range(0, len(texts), _AT_ONCE):
            found += await _in(self._threads, partial(encode, texts[start : start + _AT_ONCE]))
        return found

    def pair_frame(self, instruction: str | None = None) -> PairFrame:
        """How two texts are written as one sequence; an instruction is for models that take one."""
        if self.settings.has_reranker_prompt:
            return reranker_frame(self.tokenizer, instruction)
        if self._frame is None:
            self._frame = self.tokenizer.pair_frame()
        return self._frame

    async def in_turn(self, work: Callable[[], _T]) -> _T:
        """Checks of grammars: one after the other, and they take no thread from tokenizing and templates."""
        if self._num_waiting >= MOST_WAITING:
            raise Overloaded(
                f"{self._num_waiting} grammars are waiting to be checked, the most allowed; try again in a few seconds",
                retry_after=5.0,
            )
        self._num_waiting += 1
        try:
            return await _in(self._turns, work)
        finally:
            self._num_waiting -= 1

    def close(self) -> None:
        self._renderers.close()
        for threads in (self._threads, self._rendering, self._turns):
            threads.shutdown(wait=False, cancel_futures=True)


async def _in(threads: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(threads, work)
