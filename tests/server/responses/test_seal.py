"""Thinking that clients keep: it comes back as it was given, or is refused."""

import base64
from pathlib import Path

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.server.responses.seal import ThinkingSeal
from quire.server.store.secret import read_secret
from quire.server.store.store import Store

SECRET = b"s" * 32


def opened(seal: ThinkingSeal, sealed: str) -> str:
    given = {"type": "reasoning", "summary": [], "content": [], "encrypted_content": sealed}
    ignored = Ignored()
    (item,) = seal.opened([given], ignored)
    assert not list(ignored)
    assert "encrypted_content" not in item
    text: str = item["content"][0]["text"]
    return text


@pytest.mark.parametrize("text", ["", "x", "Hm, wörld 🙂", "a" * 100_000, "\ud800"])
def test_what_is_sealed_is_opened(text: str) -> None:
    seal = ThinkingSeal(SECRET, "t")
    sealed = seal.sealed(text)
    assert opened(seal, sealed) == text
    assert seal.sealed(text) != sealed, "a key stream is never used twice"
    assert not text.isalnum() or text not in base64.urlsafe_b64decode(sealed[3:]).decode("latin-1") or len(text) == 1


def test_what_was_changed_is_refused() -> None:
    seal = ThinkingSeal(SECRET, "t")
    sealed = seal.sealed("Hm, perhaps.")
    raw = bytearray(base64.urlsafe_b64decode(sealed[3:]))
    for place in range(len(raw)):
        changed = bytes(byte ^ (place == at) for at, byte in enumerate(raw))
        with pytest.raises(InvalidRequest, match="not sealed by this server"):
            opened(seal, "q1." + base64.urlsafe_b64encode(changed).decode())
    for other in ("q1.", sealed[:-4], sealed + "AAAA", sealed + "\n", "q1.ü"):
        with pytest.raises(InvalidRequest) as refused:
            opened(seal, other)
        assert refused.value.field == "input"


def test_it_opens_for_one_tenant_of_one_server() -> None:
    sealed = ThinkingSeal(SECRET, "t").sealed("x")
    for other in (ThinkingSeal(SECRET, "u"), ThinkingSeal(b"o" * 32, "t")):
        with pytest.raises(InvalidRequest):
            opened(other, sealed)


def test_what_is_not_sealed_stays() -> None:
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}
    assert ThinkingSeal(SECRET, "t").opened([item], Ignored()) == [item]


@pytest.mark.parametrize("sealed", ["", "gAAAAABo", "Q1.AAAA"])
def test_what_another_maker_sealed_is_left_out_and_named(sealed: str) -> None:
    seal, ignored = ThinkingSeal(SECRET, "t"), Ignored()
    told = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}], "content": []}
    silent = {"type": "reasoning", "summary": [], "content": []}
    items = [each | {"encrypted_content": sealed} for each in (told, silent)]
    assert seal.opened(items, ignored) == [told]
    assert list(ignored) == ["input[].encrypted_content"]
    with pytest.raises(InvalidRequest, match="not sealed by this server"):
        seal.opened(items, Ignored(strict=True))


def test_the_secret_lives_as_long_as_the_store(tmp_path: Path) -> None:
    first = Store(tmp_path)
    first.close()
    second = Store(tmp_path)
    second.close()
    assert first.secret == second.secret
    assert len(first.secret) == 32
    path = tmp_path / "secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.glob("secret*")] == ["secret"]
    path.write_bytes(b"short")
    with pytest.raises(OSError, match="5 bytes"):
        read_secret(path)
