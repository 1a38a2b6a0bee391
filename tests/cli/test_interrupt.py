"""Ctrl-C is noted once; the second is an exception as ever."""

import os
import signal

import pytest

from quire.cli.interrupt import Interrupt


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_is_noted_and_the_second_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert not interrupt.asked
        press()
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_it_can_be_used_again() -> None:
    interrupt = Interrupt()
    for _ in range(2):
        with interrupt:
            press()
            assert interrupt.asked
