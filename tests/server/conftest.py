"""One real server for all tests that only ask it things."""

from collections.abc import Iterator

import pytest

from tests.server.live import LiveServer, running_server


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Shared: whoever changes the server, or loads it heavily, starts one of its own."""
    with running_server(tmp_path_factory.mktemp("live")) as server:
        yield server
