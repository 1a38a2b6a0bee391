"""/stats: a key sees its own requests, an admin's key those of all."""

from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from quire.config.engine import EngineConfig
from quire.config.observe import ObserveConfig
from quire.core.prompt import Prompt
from quire.core.request import DEFAULT_TENANT, Request
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.observe.logs import RequestLog
from quire.observe.metrics import Metrics
from quire.protocol.schemas.status import STATS
from quire.server import status
from quire.server.drain import Drain
from quire.server.gate.gate import guarded
from quire.server.gate.keys import KeyRing
from quire.server.optional_stats import adapter_stats, speculation_stats
from quire.server.serving import Serving
from quire.serving.journal import Entry, Journal
from tests.server.gate.gate_app import ADMIN, ALICE, TINY, ring


def client(journal: Journal, keys: KeyRing | None) -> TestClient:
    metrics = Metrics("m", 1)
    fleet = SimpleNamespace(
        dispatcher=SimpleNamespace(journal=journal), supervisor=SimpleNamespace(slots=[], is_ready=True)
    )
    llm = SimpleNamespace(fleet=fleet, metrics=metrics, adapters=None, config=EngineConfig())
    drain = Drain()
    app = Starlette(routes=[Route(each.path, each.handler, methods=[each.method]) for each in status.OPERATIONS])
    app.state.serving = Serving(llm, ("m",), None, drain, {})  # type: ignore[arg-type]
    return TestClient(guarded(app, keys=keys, drain=drain, metrics=metrics, log=RequestLog(ObserveConfig())))


def journal_of(*tenants: str) -> Journal:
    journal = Journal()
    for number, tenant in enumerate(tenants):
        request = Request(id=f"r{number}", prompt=Prompt((1,)), params=SamplingParams(), tenant=tenant)
        journal.open(Entry(request, None))  # type: ignore[arg-type]
    return journal


@pytest.mark.parametrize(("key", "seen"), [(ALICE, ["r300"]), (TINY, []), (ADMIN, [f"r{n}" for n in range(200)])])
def test_a_key_sees_its_own_requests(key: str, seen: list[str]) -> None:
    asked = client(journal_of(*["bob"] * 300, "alice"), ring())
    found = asked.get("/stats", headers={"authorization": f"Bearer {key}"}).json()
    assert [each["id"] for each in found["requests"]] == seen


def test_without_keys_all_are_one_tenant() -> None:
    found = client(journal_of(DEFAULT_TENANT), None).get("/stats").json()
    assert [request["id"] for request in found["requests"]] == ["r0"]
    assert found["totals"] == {"requests": 0, "prompt_tokens": 0, "generation_tokens": 0, "errors": 0}
    assert found["memory"]["front_bytes"] > 1_000_000
    assert (found["speculation"], found["lora"]) == (None, None)


def test_drafts_and_adapters_are_counted_through_all_lives_of_engines() -> None:
    metrics = Metrics("m", 2)
    counts = {"total_drafts": 3, "total_draft_tokens": 12, "total_accepted_tokens": 9, "draft_method": "ngram"}
    moved = {"total_adapter_hits": 5, "total_adapter_loads": 2, "total_adapter_evictions": 1}
    now = EngineStats(step=7, adapters=2, host_adapters=6, waiting_adapters=1, **counts, **moved)  # type: ignore[arg-type]
    metrics.engine(0, now)
    metrics.engine_lost(0, "killed")
    metrics.engine(0, now)
    metrics.engine(1, now)
    counted, rates = metrics.engine_figures(), metrics.snapshot()["engines"]
    drafts, adapters = speculation_stats("ngram", rates, counted), adapter_stats([now, now], rates, counted)
    assert drafts["method"] == "ngram"
    assert [drafts[name] for name in ("drafts", "draft_tokens", "accepted_tokens")] == [9, 36, 27]
    assert [adapters[name] for name in ("on_device", "on_host", "waiting")] == [4, 12, 2]
    assert [adapters[name] for name in ("hits", "loads", "evictions")] == [15, 6, 3]
    schema = STATS["properties"]
    Draft202012Validator(schema["speculation"]).validate(drafts)
    Draft202012Validator(schema["lora"]).validate(adapters)
