"""Fronts see each other's figures."""

from pathlib import Path

from quire.serving.board import Board, Figure


def test_a_front_alone_has_its_own_sum() -> None:
    board = Board()
    board.add(Figure.WAITING_TOKENS, 5)
    board.add(Figure.WAITING_TOKENS, -2)
    assert board.mine(Figure.WAITING_TOKENS) == board.total(Figure.WAITING_TOKENS) == 3
    assert board.total(Figure.WAITING_WORK) == 0


def test_fronts_add_up_until_one_is_gone(tmp_path: Path) -> None:
    hub = Board.create(tmp_path / "board", 3)
    fronts = [Board.open(tmp_path / "board", number) for number in range(3)]
    for number, front in enumerate(fronts):
        front.put(Figure.CONNECTIONS, 10.0**number)
    assert [front.total(Figure.CONNECTIONS) for front in fronts] == [111.0] * 3
    assert fronts[1].mine(Figure.CONNECTIONS) == 10.0
    hub.clear(1)
    assert fronts[0].total(Figure.CONNECTIONS) == 101.0
    assert fronts[1].mine(Figure.CONNECTIONS) == 0.0
