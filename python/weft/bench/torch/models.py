# SPDX-License-Identifier: Apache-2.0
"""What `weft bench torch` trains and asks: small models, each with a check of its result.

Every class makes its model on all ranks, compares a few steps with the same ones done on a rank
alone, and then has `once`, which is what is timed.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from .run import HEADS

_LAYERS, _WIDTH, _BATCH = 16, 128, 8


def _small_layers() -> nn.Module:
    torch.manual_seed(1)
    parts = [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU()) for _ in range(_LAYERS)]
    return nn.Sequential(*parts)


def _batch(rank: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(1000 + rank)
    return torch.randn(_BATCH, _WIDTH, generator=source)


class Training:
    """A step of training: forward, backward, SGD."""

    def __init__(self) -> None:
        plain = _small_layers()
        self._alone = copy.deepcopy(plain)
        self._model = self.spread(plain)
        self._adjust = torch.optim.SGD(self._model.parameters(), lr=0.05)
        self._batch = _batch(dist.get_rank())

    def spread(self, model: nn.Module) -> nn.Module:
        """The model over all ranks."""
        raise NotImplementedError

    def full_parameters(self) -> list[torch.Tensor]:
        return list(self._model.parameters())

    def once(self) -> None:
        self._adjust.zero_grad()
        self._model(self._batch).square().mean().backward()
        self._adjust.step()

    def check(self) -> None:
        """Two steps must leave the parameters that the batches of all ranks on one rank leave."""
        adjust = torch.optim.SGD(self._alone.parameters(), lr=0.05)
        batches = [_batch(rank) for rank in range(dist.get_world_size())]
        for _ in range(2):
            self.once()
            adjust.zero_grad()
            for batch in batches:
                (self._alone(batch).square().mean() / len(batches)).backward()
            adjust.step()
        for ours, alone in zip(self.full_parameters(), self._alone.parameters(), strict=True):
            if not torch.allclose(ours, alone, rtol=1e-4, atol=1e-6):
                raise ValueError("training over all ranks is not what training on one rank is")


class Replicas(Training):
    """DDP, with its own choice of buckets."""

    def spread(self, model: nn.Module) -> nn.Module:
        return nn.parallel.DistributedDataParallel(model)


class Shards(Training):
    """FSDP2, each layer sharded on its own."""

    def spread(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.children():
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def full_parameters(self) -> list[torch.Tensor]:
        parts: list[Any] = list(self._model.parameters())
        return [part.full_tensor() for part in parts]


# The layers of Pythia-31M.
_WORDS, _MODEL, _HEADS, _HIDDEN, _BLOCKS, _CONTEXT = 1024, 256, HEADS, 1024, 6, 64


class Block(nn.Module):
    """A layer of a transformer that is asked for one token after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(_MODEL), nn.RMSNorm(_MODEL)
        self.q, self.k, self.v, self.o = (nn.Linear(_MODEL, _MODEL, bias=False) for _ in range(4))
        self.up = nn.Linear(_MODEL, _HIDDEN, bias=False)
        self.down = nn.Linear(_HIDDEN, _MODEL, bias=False)

    def empty_cache(self, heads: int) -> torch.Tensor:
        return torch.zeros(2, heads, _CONTEXT, _MODEL // _HEADS, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, cache: torch.Tensor, at: int) -> torch.Tensor:
        h = self.before(x)
        q, k, v = (part(h).view(-1, 1, _MODEL // _HEADS) for part in (self.q, self.k, self.v))
        cache[0, :, at : at + 1] = k
        cache[1, :, at : at + 1] = v
        seen = cache[:, :, : at + 1]
        mixed = F.scaled_dot_product_attention(q, seen[0], seen[1]).reshape(1, -1)
        x = x + self.o(mixed)
        return x + self.down(F.silu(self.up(self.between(x))))


class Transformer(nn.Module):
    """Words in, words out: the likeliest next word each time."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, _MODEL)
        self.blocks = nn.ModuleList(Block() for _ in range(_BLOCKS))
        self.head = nn.Linear(_MODEL, _WORDS, bias=False)

    def forward(self, word: torch.Tensor, caches: list[torch.Tensor], at: int) -> torch.Tensor:
        x = self.words(word)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, at)
        return self.head(x)


class Rows(nn.Module):
    """The part of a linear layer that has some of the inputs; the ranks' results add up."""

    def __init__(self, whole: nn.Linear, part: slice) -> None:
        super().__init__()
        self.weight = nn.Parameter(whole.weight[:, part].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight)
        dist.all_reduce(y)
        return y


def _columns(whole: nn.Linear, part: slice) -> nn.Linear:
    some = nn.Linear(1, 1, bias=False)
    some.weight = nn.Parameter(whole.weight[part].clone())
    return some


def shard_by_hand(model: nn.Module) -> None:
    """As LLM servers do it: slices of the weights, and an all_reduce after each second layer."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for block in model.blocks:
        for name in ("q", "k", "v", "up"):
            step = getattr(block, name).out_features // ranks
            part = slice(rank * step, (rank + 1) * step)
            setattr(block, name, _columns(getattr(block, name), part))
        for name in ("o", "down"):
            step = getattr(block, name).in_features // ranks
            part = slice(rank * step, (rank + 1) * step)
            setattr(block, name, Rows(getattr(block, name), part))


def shard_by_plan(model: nn.Module) -> None:
    """With torch.distributed.tensor.parallel."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    rows = {name: RowwiseParallel() for name in ("o", "down")}
    for block in model.blocks:
        parallelize_module(block, mesh, columns | rows)


class Tokens:
    """A token of a transformer in bf16 whose layers are spread over the ranks."""

    def __init__(self, shard: Any) -> None:
        torch.manual_seed(2)
        model = Transformer().to(torch.bfloat16)
        self._alone = copy.deepcopy(model)
        shard(model)
        self._model = model
        self._caches = self._empty(_HEADS // dist.get_world_size())
        self._word, self._at = torch.tensor([1]), 0

    def _empty(self, heads: int) -> list[torch.Tensor]:
        return [block.empty_cache(heads) for block in self._alone.blocks]

    @torch.inference_mode()
    def once(self) -> None:
        self._word = self._model(self._word, self._caches, self._at).argmax(-1)
        self._at = (self._at + 1) % _CONTEXT

    @torch.inference_mode()
    def check(self) -> None:
        """The scores of some words must be those of the whole model, but for bf16's rounding."""
        whole = self._empty(_HEADS)
        for at in range(4):
            word = torch.tensor([7 * at + 1])
            ours = self._model(word, self._caches, at).float()
            alone = self._alone(word, whole, at).float()
            if (ours - alone).norm() > 0.03 * alone.norm():
                raise ValueError("the transformer over all ranks is not the one on one rank")


MAKERS = {
    "ddp_step": Replicas,
    "fsdp2_step": Shards,
    "llm_token": lambda: Tokens(shard_by_hand),
    "llm_token_dtensor": lambda: Tokens(shard_by_plan),
}
