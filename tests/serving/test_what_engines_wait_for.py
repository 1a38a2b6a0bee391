"""What keeps an engine from starting is told as long as it does."""

import pytest

from quire.serving.messages import Waiting
from tests.serving.fake_client import FakeClient

pytestmark = pytest.mark.anyio


async def test_an_engine_that_has_started_waits_for_nothing() -> None:
    client = FakeClient()
    client.says(Waiting("room in Ray's cluster for 2 ranks"))
    assert client.waiting_for == "room in Ray's cluster for 2 ranks"
    client.says()
    assert client.waiting_for is None
