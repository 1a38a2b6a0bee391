"""Every route of /openapi.json, fed by schemathesis with what the document allows and with what it does not."""

from importlib.metadata import version
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from quire.server.app import OPERATIONS
from quire.server.openapi import openapi_document
from tests.server.live import LiveServer

# schemathesis and what it stands on warn about their own changes; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
WAITS_FOR_WORK = "/debug/profile"
"""Records steps of a busy engine; while nothing runs it waits, and then says so with 503."""
LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
READING = ("/v1/embeddings", "/v1/classify", "/v1/pooling")
"""Routes whose input is not gone on with."""
HEADERS = {"X-Request-Deadline": "1"}
"""Seconds: what asks for a long text is cut off, which the document allows."""


document = openapi_document(OPERATIONS, version("quire"))


IS_SLOW = settings.get_current_profile_name() == "slow"
CONFIG = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": IS_SLOW}}})
"""Coverage is twenty thousand requests that break one rule of the document each; they are made up while tests are
looked for, which costs every run of pytest half a minute."""
schema = schemathesis.openapi.from_dict(document, config=CONFIG).exclude(path=WAITS_FOR_WORK)


def test_the_server_shows_the_document_that_is_tested_here(fuzzed_server: LiveServer) -> None:
    assert fuzzed_server.get("/openapi.json") == document


@schema.parametrize()
@settings(
    max_examples=1000 if IS_SLOW else 8,
    derandomize=not IS_SLOW,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_route_keeps_to_its_document(case: Any, fuzzed_server: LiveServer) -> None:
    if isinstance(case.body, dict) and not any(name in case.body for name in LENGTHS) and case.method == "POST":
        for prompt, length in (("messages", "max_tokens"), ("prompt", "max_tokens"), ("input", "max_output_tokens")):
            if prompt in case.body and case.path.startswith("/v1/") and not case.path.startswith(READING):
                case.body[length] = 2
                break
    case.call_and_validate(base_url=fuzzed_server.url, checks=CHECKS, headers=HEADERS, timeout=120)
