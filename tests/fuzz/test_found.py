"""Inputs that fuzzing found to throw something else than a refusal; each was mended."""

import socket

import msgspec
import pytest

from quire.core.errors import InvalidRequest
from quire.kvcache.transfer.wire import TransferRefused, Want, frame, receive_to_sender, receive_welcome
from quire.protocol.openai.body import read_chat_body


@pytest.mark.parametrize("kind", [{}, [], {"a": 1}])
def test_a_part_whose_type_is_no_text(kind: object) -> None:
    body = {"messages": [{"role": "user", "content": [{"type": kind, "text": "hi"}]}]}
    with pytest.raises(InvalidRequest, match="type"):
        read_chat_body(body)


def test_a_kv_message_with_text_that_is_none() -> None:
    data = frame(Want(1, [0], [b"n"], "name")).replace(b"name", b"na\xffe")
    here, there = socket.socketpair()
    with here, there:
        here.sendall(data)
        with pytest.raises(msgspec.DecodeError, match="utf-8"):
            receive_to_sender(there)


def test_a_first_kv_message_of_gigabytes() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"\xff\xff\xff\xff")
        with pytest.raises(TransferRefused, match="a message of 4294967295 bytes is more than"):
            receive_welcome(there)
