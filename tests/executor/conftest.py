"""What tests of several ranks have in common."""

from collections.abc import Iterator

import pytest

from tests.executor.ranks import OtherRanks


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    """Processes of ranks 1 to 3, for models of up to four."""
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 3)
    yield ranks
    ranks.close()
