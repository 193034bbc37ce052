"""Several processes that hold one model between them, started by `torchrun`.

"tensor": every process has some heads of every layer (transformers' tensor parallelism); all see
the same rows. "rows": every process has a part of all weights (FSDP2) and reads some of the rows.
Either way every process ends with the same numbers, those of a single one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import torch
from torch import distributed

from levelhead.core.errors import LevelheadError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Parallel = Literal["tensor", "rows"]


@final
@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    parallel: Parallel
    rank: int
    size: int

    @classmethod
    def joined(cls, parallel: Parallel) -> Ranks:
        """Meet the other processes that `torchrun` has started."""
        if parallel not in get_args(Parallel):
            raise UnknownName("way to share a model", str(parallel), get_args(Parallel))
        if not distributed.is_initialized():
            if "RANK" not in os.environ:
                raise LevelheadError(
                    "one process alone cannot share a model",
                    mend="start it by torchrun --nproc-per-node N",
                )
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
            # What is added up between processes is small, and on the CPU.
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            )
        return cls(parallel, distributed.get_rank(), distributed.get_world_size())

    def settings(self) -> dict[str, Any]:
        """What `from_pretrained` is told."""
        if self.parallel != "tensor":
            return {}  # its own FSDP wants the whole model called, and we call parts of it
        from transformers.distributed.configuration_utils import DistributedConfig

        return {"distributed_config": DistributedConfig(tp_size=self.size, tp_plan="auto")}

    def share_out(self, backbone: torch.nn.Module, blocks: Sequence[torch.nn.Module]) -> None:
        """Leave each process its part of the weights of every layer, if rows are shared."""
        if self.parallel != "rows" or self.size == 1:
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        kind = "cuda" if torch.cuda.is_available() else "cpu"
        mesh = init_device_mesh(kind, (self.size,))
        backbone.to(kind)
        for block in dict.fromkeys(blocks):
            fully_shard(block, mesh=mesh)
        fully_shard(backbone, mesh=mesh)

    def check(self, heads: int, kv_heads: int, *, fused: bool) -> None:
        """Raise unless every process can have as many heads as the others."""
        if self.parallel != "tensor":
            return
        if fused:
            raise LevelheadError(
                "queries, keys and values of this model are one map: its heads cannot be shared",
                mend="share rows instead",
            )
        if heads % self.size or kv_heads % self.size:
            fits = [str(n) for n in range(1, kv_heads + 1) if not (heads % n or kv_heads % n)]
            raise LevelheadError(
                f"{heads} heads ({kv_heads} for keys) cannot be shared by {self.size} processes",
                mend=f"start {' or '.join(fits)}, or share rows",
            )

    def refuse_heads(self, what: str) -> None:
        """Of what is done by heads, masks alone are known to reach those in other processes."""
        if self.parallel == "tensor" and self.size > 1:
            raise LevelheadError(
                f"heads are shared by several processes: no {what}",
                mend="bake an edit first, or share rows instead of heads",
            )

    def own(self, count: int) -> slice:
        """Which of so many heads are here."""
        if self.parallel != "tensor":
            return slice(0, count)
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def over(
        self, indices: Sequence[int], answer: Callable[[Sequence[int]], torch.Tensor], *, dim: int
    ) -> torch.Tensor:
        """What `answer` gives for rows, `dim` of its result, each asked by one process only."""
        if self.parallel != "rows" or self.size == 1:
            return answer(indices)
        mine = list(range(len(indices)))[self.rank :: self.size]
        # Everybody must take part in every forward: weights are gathered from all.
        found = answer([indices[i] for i in mine or [0]])
        shape = list(found.shape)
        shape[dim] = len(indices)
        total = torch.zeros(shape, dtype=found.dtype)
        if mine:
            total.index_copy_(dim, torch.tensor(mine), found)
        distributed.all_reduce(total)
        return total

    def summed(self, gates: torch.Tensor) -> torch.Tensor:
        """The derivative by the masks of all heads, of which each process has its own."""
        if self.parallel == "tensor" and self.size > 1:
            gates = gates.contiguous()
            distributed.all_reduce(gates)
        return gates


ALONE = Ranks("rows", 0, 1)
