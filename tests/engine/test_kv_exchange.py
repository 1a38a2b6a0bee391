"""Two engines of the same model: one computes a prompt, the other fetches its KV and goes on as one engine would."""

import secrets
import time
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError
from quire.core.prompt import Prompt
from quire.core.request import Emitted, Request
from quire.core.sampling_params import SamplingParams
from quire.engine.kv_exchange import KVExchange
from quire.engine.start import StartedLoop, start_loop
from quire.engine.start_exchange import start_exchange
from quire.kvcache.invariants import check
from tests.parity.tiny import make_tiny

PROMPT = tuple(5 + (7 * place) % 190 for place in range(41))
BLOCK = 4
TORCH = {"cpu_compute": "exact"}
"""Several ranks on a CPU compute with torch, in float32; so are others to."""
KINDS = {
    "GQA": ("llama", {}),
    "GQA in int8": ("llama", {"kv_cache_dtype": "int8"}),
    "latents": ("deepseek_v2-lite", {}),
    "windows": ("gemma3", {}),
    "a window everywhere": ("mistral", {}),
}


class Peer:
    """An engine that is stepped by hand, as its process does."""

    def __init__(self, path: Path, folder: Path, secret: bytes, **settings) -> None:
        settings = {"block_size": BLOCK, "num_gpu_blocks_override": 64, "max_num_batched_tokens": 16, **settings}
        self.started: StartedLoop = start_loop(EngineConfig.from_flat(model=str(path), **settings), path)
        self.loop = self.started.loop
        listen = f"unix://{folder}/{secrets.token_hex(4)}"
        self.exchange: KVExchange = start_exchange(self.started, path, listen, secret, lambda: None)
        self.tokens: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.cached: dict[str, int] = {}

    @property
    def address(self) -> str:
        return self.exchange.sender.address

    def turn(self) -> None:
        self.exchange.advance(self.loop.figures)
        if not self.loop.has_work:
            return
        update, ended = self.loop.step()
        for seq, token in zip(update.sequences, update.tokens, strict=True):
            self.tokens.setdefault(seq.request.id, []).append(token)
            self.cached[seq.request.id] = seq.num_cached
        self.ended.update(seq.request.id for seq in ended)
        self.exchange.ended(ended)
        self.exchange.advance(self.loop.figures)

    def close(self) -> None:
        check(self.loop.scheduler.kv)
        self.exchange.close()
        self.loop.close()


def request(name: str, count: int, resume: tuple[int, ...] = (), prompt: tuple[int, ...] = PROMPT) -> Request:
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
    emitted = (Emitted(0, resume),) if resume else ()
    return Request(id=name, prompt=Prompt(prompt), params=params, resume=emitted)


def until(condition, *peers: Peer, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        for peer in peers:
            peer.turn()


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("llama")).path


def pair(path: Path, folder: Path, **settings) -> tuple[Peer, Peer]:
    secret = secrets.token_bytes(32)
    return Peer(path, folder, secret, **settings), Peer(path, folder, secret, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_goes_on_elsewhere_without_computing_the_prompt_again(kind, tmp_path):
    family, settings = KINDS[kind]
    path = make_tiny(family, tmp_path / "model").path
    prefill, decode = pair(path, tmp_path, **settings)
    prefill.loop.add(request("alone", 8))
    until(lambda: "alone" in prefill.ended, prefill)
    other = tuple(token + 1 for token in PROMPT)

    prefill.loop.add(request("r", 1, prompt=other))
    decode.exchange.pull(request("r", 8, prompt=other), prefill.address, is_computing=True)
    until(lambda: "r" in prefill.ended, prefill, decode)
    [first] = prefill.tokens["r"]
    decode.loop.add(request("r", 8, (first,), prompt=other))
    until(lambda: "r" in decode.ended, prefill, decode)
    assert decode.cached["r"] == len(PROMPT) // BLOCK * BLOCK

    prefill.loop.add(request("whole", 8, prompt=other))
    until(lambda: "whole" in prefill.ended, prefill)
    assert [first, *decode.tokens["r"]] == prefill.tokens["whole"]
    until(lambda: not prefill.loop.scheduler.kv.transit.held, prefill)
    prefill.close()
    decode.close()


def test_blocks_come_before_the_prompt_is_computed_to_its_end(llama, tmp_path):
    prefill, decode = pair(llama, tmp_path)
    prefill.loop.add(request("r", 1))
    decode.exchange.pull(request("r", 8), prefill.address, is_computing=True)
    until(lambda: decode.exchange.sender and not prefill.exchange.sender.wants.empty(), decode)
    prefill.turn()  # 16 of 41 tokens
    assert "r" not in prefill.ended
    until(lambda: decode.loop.scheduler.kv.device.pool.num_cached >= 16 // BLOCK, decode)
    assert "r" not in prefill.ended
    until(lambda: "r" in prefill.ended and not decode.exchange.num_fetching, prefill, decode)
    assert decode.loop.scheduler.kv.device.pool.num_cached == len(PROMPT) // BLOCK
    prefill.close()
    decode.close()


def test_between_different_numbers_of_ranks(llama, tmp_path):
    secret = secrets.token_bytes(32)
    one, two = Peer(llama, tmp_path, secret, **TORCH), Peer(llama, tmp_path, secret, tensor_parallel_size=2, **TORCH)
    for here, there in ((one, two), (two, one)):
        prompt = tuple(token + len(here.ended) for token in PROMPT)
        there.loop.add(request("before", 6, prompt=prompt))
        until(lambda there=there: "before" in there.ended, there)
        here.exchange.pull(request("r", 6, prompt=prompt), there.address, is_computing=True)
        here.loop.add(request("r", 6, prompt=prompt))
        until(lambda here=here: "r" in here.ended, here, there)
        assert here.cached["r"] == (len(PROMPT) - 1) // BLOCK * BLOCK
        assert here.tokens["r"] == there.tokens["before"]
        here.ended.clear()
        there.ended.clear()
    one.close()
    two.close()


def test_a_prefix_that_a_peer_has_is_fetched_where_that_is_cheaper(llama, tmp_path):
    here, there = pair(llama, tmp_path)
    there.loop.add(request("before", 4))
    until(lambda: "before" in there.ended, there)
    here.exchange._seconds_per_token = 1e-9
    here.exchange.pull(request("dear", 4), there.address, is_computing=False)
    assert (here.exchange.num_fetching, here.exchange.counts.declined) == (0, 1)
    here.exchange._seconds_per_token = 1.0
    here.exchange.pull(request("r", 4), there.address, is_computing=False)
    here.loop.add(request("r", 4))
    until(lambda: "r" in here.ended, here, there)
    assert here.cached["r"] == (len(PROMPT) - 1) // BLOCK * BLOCK
    assert here.tokens["r"] == there.tokens["before"]
    here.close()
    there.close()


def test_a_lost_peer_costs_only_the_computing(llama, tmp_path):
    here, there = pair(llama, tmp_path)
    there.loop.add(request("before", 4))
    until(lambda: "before" in there.ended, there)
    here.exchange.pull(request("r", 4), there.address, is_computing=True)
    here.loop.add(request("r", 4))
    here.turn()
    assert not here.tokens
    there.close()
    until(lambda: "r" in here.ended, here)
    assert here.tokens["r"] == there.tokens["before"]
    until(
        lambda: not here.loop.scheduler.kv.transit.held, here
    )  # on a busy machine it may have gone on without waiting
    here.close()


def test_a_peer_that_says_nothing_is_not_waited_for_forever(llama, tmp_path, monkeypatch):
    monkeypatch.setattr("quire.engine.kv_exchange._LEAST_PATIENCE", 0.2)
    here, there = pair(llama, tmp_path)
    here.exchange.pull(request("r", 4), there.address, is_computing=True)
    here.loop.add(request("r", 4))
    until(lambda: "r" in here.ended, here)
    assert here.exchange.counts.given_up == 1
    there.close()
    until(lambda: not here.loop.scheduler.kv.transit.held, here)
    here.close()


def test_a_full_pool_waits_for_room(llama, tmp_path):
    here, there = pair(llama, tmp_path, num_gpu_blocks_override=24)
    there.loop.add(request("before", 4))
    until(lambda: "before" in there.ended, there)
    long = tuple(9 + place % 100 for place in range(60))
    here.loop.add(request("running", 20, prompt=long))
    until(lambda: here.tokens.get("running"), here)
    here.exchange.pull(request("r", 4), there.address, is_computing=True)
    assert not here.loop.scheduler.kv.transit.held
    here.loop.add(request("r", 4))
    until(lambda: {"r", "running"} <= here.ended, here, there)
    assert here.tokens["r"] == there.tokens["before"]
    here.close()
    there.close()


def test_without_a_prefix_cache_there_are_no_names(llama, tmp_path):
    with pytest.raises(ConfigError, match="prefix cache"):
        Peer(llama, tmp_path, b"secret", enable_prefix_caching=False)
