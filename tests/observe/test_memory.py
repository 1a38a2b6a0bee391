"""Memory is counted as the system counts it."""

from pathlib import Path

import pytest

from quire.observe.memory import resident_bytes


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="did not run: this system has no /proc")
def test_it_is_what_the_system_says():
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    told = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    assert resident_bytes() == pytest.approx(told, rel=0.1)
