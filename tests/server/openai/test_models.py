"""The names of the model over HTTP."""

from dataclasses import replace

from starlette.testclient import TestClient

from tests.server.openai.fake_serving import CALLER, FakeServing, fake_client


def test_every_name_is_listed(client: TestClient) -> None:
    body = client.get("/v1/models").json()
    assert body["object"] == "list"
    assert [card["id"] for card in body["data"]] == ["tiny", "org/tiny"]
    card = body["data"][1]
    assert (card["object"], card["owned_by"], card["root"]) == ("model", "quire", "tiny")
    assert (card["created"], card["max_model_len"]) == (1_700_000_000, 64)
    assert card["input_modalities"] == ["text"]


def test_names_with_slashes_can_be_asked_for(client: TestClient) -> None:
    listed = client.get("/v1/models").json()["data"]
    assert client.get("/v1/models/tiny").json() == listed[0]
    assert client.get("/v1/models/org/tiny").json() == listed[1]
    assert client.get("/v1/models/org%2Ftiny").json() == listed[1]
    missing = client.get("/v1/models/gpt")
    assert (missing.status_code, missing.json()["error"]["param"]) == (404, "model")


def test_a_key_sees_what_it_may_use(serving: FakeServing) -> None:
    for allowed, number in (({"org/tiny"}, 2), ({"other"}, 0)):
        client = fake_client(serving, replace(CALLER, models=frozenset(allowed)))
        assert len(client.get("/v1/models").json()["data"]) == number
