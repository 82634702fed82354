"""Tensors that may lie in shards over ranks (FSDP2), and the same code where they do not.

A plain tensor goes through unchanged, so a single process pays nothing, not even the import of
torch's distributed tensors. `whole` and `whole_like` gather, `part_like` spreads: all ranks must
call them in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """What of the tensor lies on this rank; shares its storage."""
    cut = _cut(tensor)
    return tensor if cut is None else cut.to_local()


def whole(tensor: Tensor) -> Tensor:
    """All of it, on every rank."""
    cut = _cut(tensor)
    return tensor if cut is None else cut.full_tensor()


def whole_like(parameter: Tensor, part: Tensor) -> Tensor:
    """All of what `part` is this rank's share of, where it is cut as `parameter` is.

    A part of another shape (a count of steps, say) is the same on every rank and comes back.
    """
    cut = _cut(parameter)
    if cut is None or part.shape != cut.to_local().shape:
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part,
        cut.device_mesh,
        cut.placements,
        run_check=False,
        shape=cut.shape,
        stride=cut.stride(),
    ).full_tensor()


def part_like(parameter: Tensor, value: Tensor) -> Tensor:
    """This rank's share of `value`, cut as `parameter` is; a value of another shape comes back."""
    cut = _cut(parameter)
    if cut is None or value.shape != cut.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(cut.device), cut.device_mesh, cut.placements).to_local()


def copy_into(parameter: Tensor, value: Tensor) -> None:
    """Give a parameter the values of a whole tensor of its shape."""
    local(parameter).copy_(part_like(parameter, value))


def _cut(tensor: Tensor) -> DTensor | None:
    if type(tensor) in (Tensor, nn.Parameter):
        return None
    from torch.distributed.tensor import DTensor

    return tensor if isinstance(tensor, DTensor) else None
