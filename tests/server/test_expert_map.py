"""/stats/experts: engines whose model has experts tell how the last seconds' tokens were spread over them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np

from quire.core.expert_load import ExpertLoad
from quire.server.expert_map import ExpertMap
from quire.serving.messages import Experts
from quire.serving.probe import Probe


class Engines:
    """Three engines, of which the second has no experts."""

    def __init__(self) -> None:
        self.clients = [SimpleNamespace(number=number) for number in range(3)]

    def ready(self) -> list[SimpleNamespace]:
        return self.clients

    async def experts(self, client: SimpleNamespace) -> Experts:
        return Experts() if client.number == 1 else Experts([2, 3], [[0.5, 1.5], [1.0, 1.0]])


def test_engines_with_experts_are_shown() -> None:
    engines = Engines()
    llm: Any = SimpleNamespace(fleet=SimpleNamespace(supervisor=engines), engine_calls=engines)
    found = asyncio.run(ExpertMap(llm).replicas())
    assert [each["replica"] for each in found] == [0, 2]
    assert found[1] == {"replica": 2, "layers": [2, 3], "shares": [[0.5, 1.5], [1.0, 1.0]]}


def test_a_probe_tells_what_it_last_saw() -> None:
    probe = Probe(SimpleNamespace())  # type: ignore[arg-type]
    assert probe.experts() == Experts()
    probe._experts.look(ExpertLoad((1, 3), np.array([[2.0, 6.0], [0.0, 0.0]])))
    assert probe.experts() == Experts([1, 3], [[0.5, 1.5], [0.0, 0.0]])
