"""Checks of grammars wait for their turn, up to a bound, and keep nothing else waiting."""

import asyncio
import threading
from pathlib import Path

import pytest

from quire.config.parsers import ParserConfig
from quire.core.errors import Overloaded
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
