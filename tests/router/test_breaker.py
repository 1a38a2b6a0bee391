"""When a member is left alone, and when it is tried again."""

from quire.router.breaker import Breaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(Clock())
    for _ in range(4):
        breaker.failed()
    breaker.succeeded()
    for _ in range(4):
        breaker.failed()
    assert (breaker.state, breaker.allows) == ("closed", True)
    breaker.failed()
    assert (breaker.state, breaker.allows) == ("open", False)


def test_one_request_tries_and_the_pause_grows() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(5):
        breaker.failed()
    pauses = []
    for _ in range(7):
        start = clock.now
        while not breaker.allows:
            clock.now += 0.5
        pauses.append(clock.now - start)
        assert breaker.state == "half-open"
        breaker.sending()
        assert not breaker.allows  # until that one is back
        breaker.failed()
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    clock.now += 31
    breaker.sending()
    breaker.ended()  # its client left: the next one tries
    assert (breaker.state, breaker.allows) == ("half-open", True)
    breaker.sending()
    breaker.succeeded()
    assert (breaker.state, breaker.allows) == ("closed", True)
