"""A process that works is told from one that does not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from quire.serving import liveness
from quire.serving.liveness import Liveness

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="did not run: this system has no /proc")


@pytest.fixture
def busy() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(liveness, "LIFELESS_AFTER", 0.5)
    return 0.5


def silent_for(seconds: float, signs: Liveness) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if signs.is_lifeless():
            return True
        time.sleep(0.05)
    return False


def test_a_busy_process_is_alive_however_silent(busy, patience):
    signs = Liveness(busy.pid)
    signs.heard()
    assert not silent_for(4 * patience, signs)


def test_a_stopped_process_is_not(busy, patience):
    signs = Liveness(busy.pid)
    os.kill(busy.pid, signal.SIGSTOP)
    signs.heard()
    assert silent_for(60, signs)


def test_a_word_now_and_then_is_life(busy, patience):
    signs = Liveness(busy.pid)
    os.kill(busy.pid, signal.SIGSTOP)
    for _ in range(8):
        signs.heard()
        assert not silent_for(patience / 2, signs)


def test_a_process_of_which_nothing_is_known_is_left_alone(patience):
    signs = Liveness(2**22 + 1)
    signs.heard()
    assert not silent_for(3 * patience, signs)
