"""A model sharded by ``fully_shard`` over the processes of a generation."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from cotenant.elastic import failing
from cotenant.elastic.exchange import Broken, Group
from cotenant.elastic.members import AGAIN, Finished, Member, Retired
from cotenant.elastic.process import Settings
from cotenant.elastic.sharded_sums import total_norm, watch
from cotenant.errors import InputError

__all__ = ["Again", "Shard", "Sharding", "check_optimizers", "clip"]

Shard = Callable[[Any, Any], None]
_WATCH_S = 0.1
_TOLD_S = 5.0
_END_S = 60.0
_ELEMENTWISE = ("Adam", "AdamW", "SGD")
"""Of torch.optim, those whose bits have been compared."""


class Again(SystemExit):
    """The group has changed: this process leaves and is started anew by the supervisor; exit code 86."""


class Sharding:
    """The group of this process, and the sharded model.

    Parameters
    ----------
    settings : Settings
    model : Module
        Whole, with its values; it is sharded in place.
    shard : callable
        Given the model and a mesh of one dimension; applies ``fully_shard`` to blocks and to the model.

    Attributes
    ----------
    policies : dict
        For the run's identity: the mixed precision of each ``fully_shard`` module that asks for it.
    summed : callable
        Given the place in the script where shards are summed in an order that depends on the number of processes.

    Raises
    ------
    InputError, Retired
    """

    def __init__(self, settings: Settings, model: Any, shard: Shard) -> None:
        _check(settings, model)
        self.member = Member.from_environment()
        if self.member is not None and settings.folder is None:
            raise InputError(
                "a sharded run on several processes needs elastic.Run(state=FOLDER): when their number changes they"
                " are started anew from it"
            )
        if self.member is not None:
            failing.ask_first(self._failed)
        self.group: Group | None = None
        self._closed = threading.Event()
        self._watching: threading.Thread | None = None
        store = self._join(settings)
        self.rank, self.size = (self.group.rank, self.group.size) if self.group else (0, 1)
        self.mesh = self._mesh(store)
        self.used: set[int] = set()
        self.summed: Callable[[str], None] = lambda place: None
        watch(self.mesh, self._told)
        self._apply(model, shard)

    def _told(self, place: str) -> None:
        self.summed(place)

    # -- group -----------------------------------------------------------------------

    def _join(self, settings: Settings) -> Any:
        from torch.distributed import HashStore, PrefixStore

        member = self.member
        if member is None:
            return HashStore()
        while True:
            try:
                group = member.join()
            except Finished:
                raise Retired(0) from None
            if not member.handover:
                break
            member.inside()
            group.close()
        if group.size > settings.workers:
            raise InputError(f"{group.size} processes for {settings.workers} logical workers: start fewer")
        self.group = group
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()
        # A thread that asks the store while Python ends aborts the process.
        atexit.register(self.close)
        return PrefixStore(f"sharded/{member.generation}", member._connect())

    def _watch(self) -> None:
        # Collectives of gloo wait for a dead process for ever, and cannot be aborted: the survivors leave.
        while not self._closed.wait(_WATCH_S):
            if self.group is not None and self.group.lost and not self._late():
                self.leave()

    def _late(self) -> bool:
        # Once another is over the last step, whose state is then written, the group is given up for all; who
        # has not come so far only needs a moment.
        with contextlib.suppress(RuntimeError):  # the supervisor is gone
            if self.member is not None and self.member.over():
                return self._closed.wait(_END_S)
        return self._closed.is_set()

    def leave(self) -> None:
        """End this process at once, to be started anew."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(AGAIN)

    def broken(self) -> None:
        """A collective failed: if a process is gone, the supervisor says so soon, and this one leaves."""
        deadline = time.monotonic() + _TOLD_S
        while self.member is not None and time.monotonic() < deadline:
            # One that is not part of the next generation may be gone, which is told to nobody.
            if self.member.newest() > self.member.generation or self.member.has("late-death"):
                self.leave()
            time.sleep(_WATCH_S)

    def _failed(self, error: BaseException) -> None:
        # Collectives of the script fail as well, as those of full_tensor() in its clipping.
        if isinstance(error, RuntimeError | Broken):
            with contextlib.suppress(RuntimeError):  # the supervisor is gone, too
                self.broken()

    def close(self) -> None:
        """The last step is done; the collectives stay usable."""
        self._closed.set()
        if self._watching is not None:
            self._watching.join()

    def _mesh(self, store: Any) -> Any:
        import torch.distributed as dist

        if dist.is_initialized():
            raise InputError(
                "a process group exists already: a sharded run makes its own; remove init_process_group()"
            )
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        hour = datetime.timedelta(hours=1)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size, timeout=hour)
        return dist.init_device_mesh("cpu", (self.size,), mesh_dim_names=("shard",))

    # -- model -----------------------------------------------------------------------

    def _apply(self, model: Any, shard: Shard) -> None:
        from torch.distributed.fsdp import FSDPModule

        from cotenant.elastic.sharded_rounds import Gather, OrderedReduce, Round

        tied = _tied(model)
        shard(model, self.mesh)
        self._check_sharded(model, tied)
        self.round = Round(self.broken)
        self.reduces: list[Any] = []
        self.policies = _policies(model)
        numbers = {name: number for number, (name, _) in enumerate(_trained(model))}
        for path, module in model.named_modules():
            if isinstance(module, FSDPModule):
                reduce = OrderedReduce(self.round, self.round.number_of(path), self.broken)
                self.reduces.append(reduce)
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
                module.set_custom_reduce_scatter(reduce)
                module.set_custom_all_gather(Gather(self.round, self.round.number_of(path), self.broken))
                module.set_reduce_scatter_unused_params(True, recurse=False)
                if self.size == 1:
                    module.set_all_reduce_hook(reduce.alone)
                self._note_use(model, module, numbers)

    def _note_use(self, model: Any, module: Any, numbers: dict[str, int]) -> None:
        # Every parameter is given a gradient, zeros if need be; which had one is seen on the whole parameter.
        sharded = {id(p) for p in model.parameters()}
        module.unshard()
        for name, whole in model.named_parameters():
            if id(whole) not in sharded and name in numbers:
                number = numbers[name]
                whole.register_post_accumulate_grad_hook(lambda _, n=number: self.used.add(n))
        module.reshard()

    def _check_sharded(self, model: Any, tied: list[list[str]]) -> None:
        from torch.distributed.tensor import DTensor

        named = dict(model.named_parameters(remove_duplicate=False))
        for name, parameter in named.items():
            if not isinstance(parameter, DTensor):
                raise InputError(
                    f"{name} is not sharded: shard= must also call fully_shard(model, mesh=mesh)"
                )
            if parameter.device_mesh != self.mesh:
                raise InputError(
                    f"{name} is sharded over another mesh: give fully_shard the mesh that shard= is given"
                )
        for names in tied:
            if len({id(named[name]) for name in names}) > 1:
                raise InputError(
                    f"{' and '.join(names)} are one tied parameter in two fully_shard groups, each of which would"
                    " sum a gradient of its own: leave both modules to the same fully_shard call"
                )


def _check(settings: Settings, model: Any) -> None:
    import torch
    from torch.distributed.fsdp import FSDPModule

    if settings.order != "sequence":
        raise InputError(
            f"order is {settings.order!r}: gradients of a sharded model are summed in order 'sequence'; set"
            " elastic.Run(order='sequence')"
        )
    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise InputError(
            f"PyTorch {torch.__version__} is too old for sharded elastic runs: install 2.13 or later"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise InputError(
                f"{name} is on the meta device: sharded runs need the initial values; build it on the CPU"
            )
        if parameter.device.type != "cpu":
            raise InputError(
                f"{name} is on {parameter.device}: sharded runs have been made for CPUs only so far"
            )


def _tied(model: Any) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _policies(model: Any) -> dict[str, str]:
    # What was asked for, module by module; modules that ask for nothing round as an unsharded model does.
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy

    found = {}
    for path, module in model.named_modules():
        if isinstance(module, FSDPModule):
            policy = module._get_fsdp_state()._mp_policy
            if policy != MixedPrecisionPolicy():
                fields = dataclasses.asdict(policy).items()
                text = ", ".join(f"{key} {str(value).removeprefix('torch.')}" for key, value in fields)
                found[f"mixed precision of {path or 'the model'}"] = text
    return found


def _trained(model: Any) -> list[tuple[str, Any]]:
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def check_optimizers(optimizers: dict[str, Any]) -> None:
    """See that each element is updated from its own gradient and state alone, whatever lies beside it.

    Raises
    ------
    InputError
    """
    import torch

    for name, one in optimizers.items():
        kind = type(one).__name__
        if any(group.get("fused") for group in one.param_groups):
            raise InputError(
                f"optimiser {name!r} is a fused {kind}: its kernel rounds the end of a tensor otherwise than its middle,"
                " and shards end elsewhere on other numbers of processes; leave fused out"
            )
        compared = type(one) in {getattr(torch.optim, known) for known in _ELEMENTWISE}
        if not compared and not getattr(one, "elementwise", False):
            raise InputError(
                f"optimiser {name!r} is a {kind}, which may combine elements that lie on different processes, and whose"
                f" bits have not been compared sharded; use torch.optim's {', '.join(_ELEMENTWISE)}, or set"
                " elementwise = True on it if each element is updated from its own gradient and state alone"
            )


def clip(parameters: Any, max_norm: float, norm_type: float = 2.0) -> Any:
    """As ``torch.nn.utils.clip_grad_norm_`` of whole tensors, one of which is put together at a time.

    Returns
    -------
    Tensor
        The norm before clipping.
    """
    import torch

    grads = [p.grad for p in parameters if p.grad is not None]
    with torch.no_grad():
        total = total_norm(grads, norm_type)
        factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
        for grad in grads:
            grad.to_local().mul_(factor)
    return total
