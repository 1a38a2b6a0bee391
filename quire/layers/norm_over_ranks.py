"""NormOverRanks: an RMS norm over all heads of a token, of which every rank has some."""

import torch
from torch import Tensor

from quire.core.errors import ConfigError
from quire.parallel.group import Group
from quire.spec.layer import HeadNormsSpec
from quire.spec.norm import NormSpec


class NormOverRanks:
    """Of queries and of keys, in one exchange. Owns no weights."""

    def __init__(self, spec: HeadNormsSpec, group: Group) -> None:
        if spec.query.kind != "rms":
            raise ConfigError(
                f"--tensor-parallel-size is {group.size}, but this model has {spec.query.kind} norms over all heads, "
                "and quire cuts RMS norms; leave it at 1."
            )
        self._group = group
        self._sizes = [spec.query.shape[0], spec.key.shape[0]]
        # a head that several ranks have is counted by each of them
        self._counted = [norm.shape[0] * group.size for norm in (spec.query, spec.key)]
        self._norms: tuple[NormSpec, NormSpec] = (spec.query, spec.key)

    def __call__(self, heads: Tensor, query_weight: Tensor, key_weight: Tensor) -> Tensor:
        """heads: [tokens, queries, keys and values of this rank]; gives them with queries and keys normed."""
        parts = [part.float() for part in heads[:, : sum(self._sizes)].split(self._sizes, dim=1)]  # type: ignore[no-untyped-call]
        squares = torch.stack([part.square().sum(-1) for part in parts], dim=-1)  # [tokens, 2]
        squares = self._group.all_reduce(squares)
        normed = heads.clone()
        first = 0
        for place, (part, weight) in enumerate(zip(parts, (query_weight, key_weight), strict=True)):
            norm = self._norms[place]
            scale = torch.rsqrt(squares[:, place : place + 1] / self._counted[place] + norm.eps)
            normed[:, first : first + part.shape[1]] = part * scale * (weight.float() + norm.offset)
            first += part.shape[1]
        return normed
