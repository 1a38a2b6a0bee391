"""Simulated requests: prompts that are equal exactly where they should be."""

from quire.simulation.workload import END, RequestMaker, SimulatedRequest


def prompt(number: int, length: int, *ids: int, block: int = 8) -> tuple[int, ...]:
    return SimulatedRequest(number, 0.0, length, 1, hash_ids=ids, hash_block=block).prompt()


def test_prompts_have_their_length_and_differ_from_the_first_token_on() -> None:
    assert [len(prompt(number, number + 1)) for number in range(40)] == list(range(1, 41))
    assert len({prompt(number, 16)[0] for number in range(40)}) == 40


def test_shared_pieces_are_equal_and_the_rest_is_not() -> None:
    one, two = prompt(1, 30, 5, 6), prompt(2, 30, 5, 6)
    assert one[:16] == two[:16]
    assert one[16] != two[16]
    assert prompt(1, 30, 5, 6)[:8] == prompt(2, 30, 5, 7)[:8]
    assert prompt(1, 30, 5, 6)[8] != prompt(2, 30, 5, 7)[8]


def test_the_last_piece_is_cut_at_the_end_of_the_prompt() -> None:
    assert prompt(1, 12, 5, 6) == prompt(2, 12, 5, 6)
    assert len(prompt(1, 12, 5, 6)) == 12
    assert prompt(1, 12, 5, 6) == prompt(2, 30, 5, 6)[:12]


def test_requests_carry_what_the_scheduler_may_know() -> None:
    maker = RequestMaker()
    simulated = SimulatedRequest(7, 1.5, 20, 999, max_tokens=50, tenant="a", priority=-1, n=3)
    request = maker.make(simulated)
    assert (request.id, request.arrival, request.tenant, len(request.prompt.tokens)) == ("7", 1.5, "a", 20)
    assert (request.params.n, request.params.max_tokens, request.params.priority) == (3, 50, -1)
    assert request.stop_ids() == {END}
    assert "999" not in repr(request), "how long the answer will be is the device's secret"
    assert maker.make(simulated).params is request.params
