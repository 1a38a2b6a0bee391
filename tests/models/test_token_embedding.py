"""What enters the first layer: vectors that take the place of tokens' own, and types of tokens."""

from dataclasses import replace

import torch

from quire.layers.batch import Batch, Embeddings
from quire.layers.policy import WeightPolicy
from quire.models.load import expected_tensors, load_weights
from quire.models.random_weights import RandomWeights
from quire.models.registry import describe
from quire.models.token_embedding import TokenEmbedding

CPU = torch.device("cpu")
_BERT = {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}


def make(config: dict[str, object]) -> TokenEmbedding:
    spec = describe({**config, "intermediate_size": 16}, "config.json")
    embedding = TokenEmbedding(spec.embedding, WeightPolicy(torch.float32, CPU))
    load_weights(embedding, RandomWeights(expected_tensors(embedding), torch.float32, CPU, seed=1))
    return embedding


def batch(count: int) -> Batch:
    counts = torch.tensor([0, count])
    return Batch(counts, torch.tensor([count]), torch.full((count,), count), [], [], [])


def test_vectors_take_the_place_of_tokens() -> None:
    config = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    embedding = make({**config, "vocab_size": 9, "max_position_embeddings": 8})
    ids, positions = torch.tensor([1, 2, 3, 4]), torch.arange(4)
    given = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    overlaid = replace(batch(4), embeddings=Embeddings(given, torch.tensor([2, 1])))
    found, plain = embedding(ids, positions, overlaid), embedding(ids, positions, batch(4))
    assert torch.equal(found[[2, 1]], given)
    assert torch.equal(found[[0, 3]], plain[[0, 3]])


def test_types_tell_the_texts_of_a_pair_apart() -> None:
    embedding = make(_BERT)
    ids, positions = torch.tensor([1, 2, 3]), torch.arange(3)
    typed = embedding(ids, positions, replace(batch(3), types=torch.tensor([0, 0, 1])))
    plain = embedding(ids, positions, batch(3))
    assert torch.equal(typed[:2], plain[:2])
    assert not torch.equal(typed[2], plain[2])
