"""Checks of grammars wait for their turn, up to a bound, and keep nothing else waiting; nor do many prompts."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quire.config.parsers import ParserConfig
from quire.core.errors import Overloaded
from quire.serving import tokenizer_service
from quire.serving.tokenizer_service import MOST_WAITING, TokenizerService


def test_too_many_that_wait_are_refused_and_tokenizing_goes_on(tiny_chat: Path) -> None:
    asyncio.run(_crowd(TokenizerService(tiny_chat, None, ParserConfig())))


async def _crowd(texts: TokenizerService) -> None:
    go = threading.Event()
    waiting = [asyncio.ensure_future(texts.in_turn(go.wait)) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match=f"{MOST_WAITING} grammars are waiting"):
        await texts.in_turn(go.wait)
    assert await texts.encode("x" * 5000)
    go.set()
    assert all(await asyncio.gather(*waiting))
    assert await texts.in_turn(lambda: 5) == 5
    texts.close()


def test_many_prompts_are_tokenized_off_the_loop(tiny_chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TokenizerService(tiny_chat, None, ParserConfig())
    encode, sizes = texts.tokenizer.encode_batch, list[int]()
    loop = threading.get_ident()

    def watched(given: Sequence[str], **options: Any) -> list[list[int]]:
        assert threading.get_ident() != loop
        sizes.append(len(given))
        return encode(given, **options)

    monkeypatch.setattr(texts.tokenizer, "encode_batch", watched)
    prompts = [f"prompt {number}" for number in range(2048)]
    found = asyncio.run(texts.encode_batch(prompts))
    assert found == encode(prompts)
    assert sum(sizes) == 2048
    assert max(sizes) <= 64, "others have their turn"
    texts.close()


def test_slow_templates_leave_tokenizing_its_threads(tiny_chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TokenizerService(tiny_chat, None, ParserConfig())
    go = threading.Event()
    monkeypatch.setattr(TokenizerService, "load_template", lambda self: SimpleNamespace(render=lambda _: go.wait()))

    async def scenario() -> None:
        slow = [asyncio.ensure_future(texts.render([])) for _ in range(8)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(30):
                assert await texts.encode("x" * 5000)
        finally:
            go.set()
        await asyncio.gather(*slow)

    asyncio.run(scenario())
    texts.close()


def test_a_template_is_loaded_once_however_many_ask_at_the_same_time(
    tiny_chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = TokenizerService(tiny_chat, None, ParserConfig())
    load, go, begun, calls = tokenizer_service.load_chat_template, threading.Event(), threading.Event(), list[Path]()

    def watched(path: Path, *given: Any, **options: Any) -> Any:
        calls.append(path)
        begun.set()
        go.wait()
        return load(path, *given, **options)

    async def ask() -> list[str]:
        texts.begin_template()
        await asyncio.to_thread(begun.wait)
        asking = [asyncio.ensure_future(texts.render([{"role": "user", "content": "a"}])) for _ in range(2)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*asking)

    monkeypatch.setattr(tokenizer_service, "load_chat_template", watched)
    first, second = asyncio.run(ask())
    assert first == second
    assert calls == [tiny_chat]
    texts.close()
