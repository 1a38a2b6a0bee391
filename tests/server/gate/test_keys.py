"""Keys: found by what they hash to, kept through a reload, and never shown."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import ConfigError, Overloaded
from quire.core.request import DEFAULT_TENANT
from quire.server.gate.account import Limits
from quire.server.gate.key_source import KeySource
from quire.server.gate.keys import Key, KeyRing, digest_of, master_key
from quire.server.gate.keys_file import parse_keys, read_keys
from quire.server.gate.new_key import append_entry, new_key

A, B = "a" * 64, "b" * 64


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def written(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "keys.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    text = f"""
alice:
  sha256: {hashed("secret")}
  requests_per_minute: 60
  tokens-per-minute: 10000
  concurrency: 4
  priority: -2
  models: [big, small]
  weight: 2.5
  cache_salt: shared
  admin: true
bob: {{sha256: {B}}}
"""
    alice, bob = read_keys(written(tmp_path, text))
    assert alice == Key(
        "alice", digest_of(b"secret"), Limits(60, 10000, 4), -2, frozenset({"big", "small"}), 2.5, True, True
    )
    assert bob == Key("bob", bytes.fromhex(B), priority=0)
    assert bob.cache_salt is not None
    assert alice.cache_salt is None


BAD = [
    ("", "has no keys, so nobody could come in"),
    ("- a", "must have a line `name:` for each key"),
    ("just text", "must have a line `name:`"),
    ("a: [", "is not valid YAML"),
    ("a: {sha256: *x}", "is not valid YAML"),
    ("a: \x00", "is not valid YAML"),
    ("[" * 5000, "is not valid YAML"),
    (f"a: {{sha256: {A}}}\nb: text", "line 2: the entry 'b' must have fields below it"),
    ("a:", "line 1: the entry 'a' must have fields"),
    ("a: {admin: true}", "the entry 'a' has no sha256; `quire key NAME"),
    (f"a: {{sha256: {A}}}\na: {{sha256: {B}}}", "line 2: the name 'a' is there twice"),
    (f"a: {{sha256: {A}}}\nb: {{sha256: {A.upper()}}}", "line 2: 'b' has the same sha256 as 'a'"),
    (f"a:\n  sha256: {A}\n  sha256: {B}", "line 3: the entry 'a' has sha256 twice"),
    (f"a:\n  sha256: {A}\n  concurency: 3", "line 3: the entry 'a' has an unknown field 'concurency'. Did you mean"),
    (f"a b: {{sha256: {A}}}", "line 1: a name is made of letters"),
    (f"default: {{sha256: {A}}}", "is not 'default'"),
    (f"? [a]\n: {{sha256: {A}}}", "line 1: a name is made of"),
    (f"ключ: {{sha256: {A}}}", "a name is made of"),
    (f"{'x' * 65}: {{sha256: {A}}}", "64 at most"),
    *[
        (f"a:\n  sha256: {A}\n  {field}: {value}", f"line 3: the entry 'a' gives {field} as something else than")
        for field, value in [
            ("requests_per_minute", "0"), ("requests_per_minute", "many"), ("tokens_per_minute", "1.5"),
            ("tokens_per_minute", "true"), ("concurrency", "-1"), ("concurrency", "99999999999999999999"),
            ("priority", "high"), ("priority", "10000000"), ("models", "big"), ("models", "[]"), ("models", "[1]"),
            ("weight", "0"), ("weight", ".nan"), ("weight", "yes"), ("cache_salt", "mine"), ("admin", "1"),
            ("admin", "!!python/object/apply:os.getcwd []"), ("weight", "2020-13-45"),
        ]
    ],
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_a_bad_file_is_refused_by_its_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_keys(written(tmp_path, text))
    assert expected in str(caught.value)
    assert "keys.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["sha256", "key", "api_key", "secret"])
def test_a_plain_key_in_the_file_is_refused_and_not_shown(tmp_path: Path, field: str) -> None:
    secret = "quire-swordfish"
    with pytest.raises(ConfigError, match=r"`printf %s KEY \| sha256sum` hashes one") as caught:
        read_keys(written(tmp_path, f"a:\n  {field}: {secret}\n"))
    assert secret not in str(caught.value)
    assert "line 2" in str(caught.value)


def test_a_digest_of_digits_alone_is_read_as_it_stands() -> None:
    (key,) = parse_keys(f"a: {{sha256: {'0' * 63}1}}", "x")
    assert key.digest == bytes(31) + b"\1"
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        parse_keys("a: {sha256: [a]}", "x")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read --keys"):
        read_keys(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot read --keys"):
        read_keys(tmp_path)
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_keys(path)


def test_finding_a_key() -> None:
    ring = KeyRing([Key("a", digest_of(b"secret")), master_key("master")])
    assert ring.find(b"secret") is not None
    assert ring.find(b"master") == master_key("master")
    assert master_key("master").name == DEFAULT_TENANT
    for wrong in (b"", b"secre", b"secret ", b"Secret", digest_of(b"secret"), digest_of(b"secret").hex().encode()):
        assert ring.find(wrong) is None
    for odd in ("ключ".encode(), b"\xff\xfe\x00", "é".encode("latin-1"), b"x" * 10**6):
        assert ring.find(odd) is None
    assert KeyRing([Key("u", digest_of("ключ".encode()))]).find("ключ".encode()) is not None


def test_what_is_compared_is_digests_and_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    ring = KeyRing([Key("a", digest_of(b"secret"))])
    monkeypatch.setattr("quire.server.gate.keys.hmac.compare_digest", compare)
    assert ring.find(b"secret") is not None
    assert compared == [(digest_of(b"secret"), digest_of(b"secret"))]


def test_secrets_are_in_no_repr() -> None:
    key = master_key("swordfish")
    assert "swordfish" not in repr(key)
    assert repr(key.digest) not in repr(key)


def test_salts_differ_and_do_not_tell_the_digest() -> None:
    one, two = Key("a", bytes.fromhex(A)), Key("b", bytes.fromhex(B))
    assert one.cache_salt != two.cache_salt
    assert A not in str(one.cache_salt)
    assert Key("other", bytes.fromhex(A)).cache_salt == one.cache_salt


def test_replacing_keeps_accounts_by_name() -> None:
    ring = KeyRing([Key("a", digest_of(b"1"), Limits(concurrency=1)), Key("gone", digest_of(b"2"))])
    account = ring.account(Key("a", digest_of(b"1")))
    account.enter()
    ring.replace([Key("a", digest_of(b"3"), Limits(concurrency=2)), Key("new", digest_of(b"4"), weight=3)])
    assert ring.find(b"1") is None
    assert ring.find(b"2") is None
    rotated = ring.find(b"3")
    assert rotated is not None
    assert ring.account(rotated) is account
    account.enter()
    with pytest.raises(Overloaded):
        account.enter()
    assert ring.weights() == {"a": 1.0, "new": 3.0}


def test_a_key_is_revoked_when_it_opens_something_else() -> None:
    def key(name: str, **fields: Any) -> Key:
        return Key(name, digest_of(name.encode()), **fields)

    before = [key("gone"), key("tamed", admin=True), key("slowed"), key("same")]
    ring = KeyRing(before)
    events = {each.name: ring.revoked(each) for each in before}
    ring.replace([key("tamed"), key("slowed", limits=Limits(concurrency=1), weight=9.0), key("same"), key("new")])
    assert {name for name, event in events.items() if event.is_set()} == {"gone", "tamed"}
    assert not ring.revoked(key("tamed")).is_set(), "it is good again for who comes with it now"
    assert [ring.has_tenant(name) for name in ("gone", "tamed", "new")] == [False, True, True]


def test_twins_are_refused_and_change_nothing() -> None:
    ring = KeyRing([Key("a", digest_of(b"1"))])
    for twins in (
        [Key("x", digest_of(b"9")), Key("y", digest_of(b"9"))],
        [Key("x", digest_of(b"8")), Key("x", digest_of(b"9"))],
    ):
        with pytest.raises(ConfigError, match="twice"):
            ring.replace(twins)
    assert ring.find(b"1") is not None


def test_no_key_and_no_file_is_no_ring() -> None:
    source = KeySource(None, None)
    assert source.ring is None
    assert source.reload() is False


def test_the_one_key_and_the_file_hold_together(tmp_path: Path) -> None:
    path = written(tmp_path, f"a: {{sha256: {hashed('one')}}}")
    source = KeySource("master", path)
    assert source.ring is not None
    assert len(source.ring) == 2
    with pytest.raises(ConfigError, match="--api-key must be none of"):
        KeySource("one", path)


def test_reload_takes_the_new_file_or_keeps_the_old(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, f"a: {{sha256: {hashed('one')}}}")
    source = KeySource(None, path)
    ring = source.ring
    assert ring is not None
    path.write_text(f"a: {{sha256: {hashed('two')}}}")
    assert source.reload() is True
    assert source.ring is ring
    assert ring.find(b"one") is None
    assert ring.find(b"two") is not None
    path.write_text("a: nonsense")
    assert source.reload() is False
    assert ring.find(b"two") is not None
    assert "keys stay as they were" in caplog.text


@pytest.mark.parametrize(
    ("mode", "warning"),
    [(0o600, None), (0o640, None), (0o644, "can be read by everybody"), (0o660, "can be changed by others")],
)
def test_a_file_open_to_others_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warning: str | None
) -> None:
    KeySource(None, written(tmp_path, f"a: {{sha256: {A}}}", mode))
    if warning is None:
        assert caplog.text == ""
    else:
        assert warning in caplog.text
        assert f"mode {mode:04o}" in caplog.text


def test_a_new_key_opens_what_its_entry_says() -> None:
    made = new_key("alice", {"concurrency": 3, "weight": None})
    (key,) = parse_keys(made.entry, "x")
    assert key.limits == Limits(concurrency=3)
    assert KeyRing([key]).find(made.secret.encode()) == key
    assert made.secret not in made.entry
    assert len(made.secret) > 40
    assert new_key("alice", {}).secret != made.secret


def test_entries_are_added_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    append_entry(path, new_key("a", {}).entry)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# mine\n" + path.read_text().rstrip("\n"))
    path.chmod(0o644)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    append_entry(link, new_key("b", {}).entry)
    assert link.is_symlink()
    assert [key.name for key in read_keys(path)] == ["a", "b"]
    assert path.read_text().startswith("# mine\n")
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"nothing was written: .*the name 'a' is there twice"):
        append_entry(path, new_key("a", {}).entry)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["keys.yaml", "link.yaml"]
