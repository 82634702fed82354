"""AdamW that keeps fp32 masters of half-precision weights, fused into one kernel where torch can.

An update of Adam's size is lost in bf16: it is below the distance of neighbouring numbers for most
weights. So weights that are not at least fp32 have a master, which is what the optimiser moves and
what a checkpoint stores; the weight itself is the master rounded. Weights in fp32 (adapters always)
are their own masters and cost nothing.

Where weights lie in shards over ranks, each rank moves its own and keeps the moments of those;
`tensors` gathers, so a checkpoint does not tell how many ranks wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.shards import local, part_like, whole_like

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Optimiser:
    """Moments and masters of named parameters."""

    def __init__(self, named: Mapping[str, nn.Parameter]) -> None:
        self._named = dict(named)
        self._masters = {name: _master(parameter) for name, parameter in named.items()}
        is_cuda = any(parameter.is_cuda for parameter in named.values())
        # On a CPU the fused kernel and the plain loop are both exact; the kernel makes one pass
        # over memory instead of a dozen.
        self._adam = torch.optim.AdamW(
            list(self._masters.values()), lr=0.0, fused=True, capturable=False
        )
        self._step_device = None if is_cuda else torch.device("cpu")

    def step(
        self,
        *,
        learning_rate: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
    ) -> None:
        """One update from the gradients of the parameters."""
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
            group["betas"] = (beta1, beta2)
            group["eps"] = eps
            group["weight_decay"] = weight_decay
        for name, parameter in self._named.items():
            master = self._masters[name]
            if master is not parameter:
                grad = parameter.grad
                master.grad = None if grad is None else local(grad).to(master.dtype)
        self._adam.step()
        with torch.no_grad():
            for name, parameter in self._named.items():
                master = self._masters[name]
                if master is not parameter:
                    master.grad = None
                if _is_rounded(parameter):
                    local(parameter).copy_(master)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._named.values():
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs beside the weights, whole and on the CPU.

        All ranks must call it where weights lie in shards.
        """
        found: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            kept = dict(self._adam.state.get(master, {}))
            if _is_rounded(self._named[name]):
                kept["master"] = master
            for key, value in kept.items():
                gathered = whole_like(self._named[name], value.detach())
                found[f"{name}/{key}"] = gathered.cpu().contiguous()
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from `tensors`; call it after the weights have been loaded."""
        self._adam.state.clear()
        for name, master in self._masters.items():
            parameter = self._named[name]
            if _is_rounded(parameter):
                stored = tensors.get(f"{name}/master")
                with torch.no_grad():
                    if stored is None:
                        master.copy_(local(parameter))
                    else:
                        master.copy_(part_like(parameter, stored))
            found = {
                key: self._placed(key, part_like(parameter, tensors[f"{name}/{key}"]), master)
                for key in _MOMENTS
                if f"{name}/{key}" in tensors
            }
            if found:
                self._adam.state[master] = found

    def _placed(self, key: str, value: Tensor, master: Tensor) -> Tensor:
        if key == "step":
            return value.to(self._step_device or master.device)
        return value.to(master.device)


def _is_rounded(parameter: nn.Parameter) -> bool:
    return parameter.dtype not in (torch.float32, torch.float64)


def _master(parameter: nn.Parameter) -> nn.Parameter:
    """Itself, or in fp32, or a second name for the shard that lies here."""
    here = local(parameter)
    if _is_rounded(parameter):
        return nn.Parameter(here.detach().float())
    return parameter if here is parameter else nn.Parameter(here.detach())
