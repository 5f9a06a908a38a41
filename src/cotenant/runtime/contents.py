"""What is in a saved state: taken from the objects of a training script, and put back into them."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.errors import InputError, StateError
from cotenant.runtime import randomness

__all__ = ["Objects", "check_loadable", "identity", "load_content", "named"]


def named(what: str, given: Any) -> dict[str, Any]:
    """Objects by name: one, several, or a mapping of them.

    >>> sorted(named("model", {"encoder": 1, "decoder": 2})), named("model", None)
    (['decoder', 'encoder'], {})
    """
    if given is None:
        return {}
    if isinstance(given, Mapping) and not hasattr(given, "state_dict"):
        return dict(given)
    if isinstance(given, Sequence) and not hasattr(given, "state_dict"):
        return {str(number): one for number, one in enumerate(given)}
    return {what: given}


class Objects:
    """The objects whose state a job keeps.

    Parameters
    ----------
    parts : mapping of str to mapping
        By kind (``model``, ``optimizer``, ``scheduler``, ``scaler``, ``extra``), then by name.
    gradients : bool
        Gradients that are there between steps are kept, too.

    Raises
    ------
    InputError
        If one of them has no state that can be taken.
    """

    def __init__(self, parts: Mapping[str, Mapping[str, Any]], *, gradients: bool = True) -> None:
        self._parts = parts
        self._gradients = gradients
        for kind, objects in parts.items():
            for name, one in objects.items():
                if _way(one) is None:
                    raise InputError(
                        f"{kind} {name!r} is a {type(one).__name__}: its state cannot be saved; it needs state_dict and"
                        " load_state_dict, or to be a generator of PyTorch or NumPy"
                    )

    def take(self) -> dict[str, Any]:
        """All states, by reference where PyTorch gives references."""
        content: dict[str, Any] = {
            kind: {name: _take(one) for name, one in objects.items()} for kind, objects in self._parts.items()
        }
        if self._gradients:
            content["gradients"] = {
                name: {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
                for name, model in self._parts["model"].items()
            }
        return content

    def small(self) -> dict[str, Any]:
        """The states without the models', to try out whether they can be loaded."""
        return {
            kind: {name: _take(one) for name, one in objects.items()}
            for kind, objects in self._parts.items()
            if kind != "model"
        }

    def put(self, content: Mapping[str, Any], where: str) -> None:
        """Load all states.

        Raises
        ------
        StateError
            If they are of other objects; nothing has been loaded then unless an object itself refused.
        """
        self._compare(content, where)
        for kind, objects in self._parts.items():
            for name, one in objects.items():
                try:
                    _put(one, content[kind][name])
                except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
                    raise StateError(f"{where}: the state of {kind} {name!r} does not fit: {error}") from None
        for optimizer in self._parts["optimizer"].values():
            # A scheduler warns if it steps before its optimiser, which has stepped in an earlier life.
            if hasattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched"):
                optimizer._opt_called = True
        for name, gradients in content.get("gradients", {}).items():
            for parameter_name, parameter in self._parts["model"][name].named_parameters():
                found = gradients.get(parameter_name)
                parameter.grad = None if found is None else found.to(parameter.device)

    def _compare(self, content: Mapping[str, Any], where: str) -> None:
        for kind, objects in self._parts.items():
            there, here = sorted(content.get(kind, {})), sorted(objects)
            if there != here:
                raise StateError(
                    f"{where}: saved with {kind} {', '.join(there) or 'none'}, this run has"
                    f" {', '.join(here) or 'none'}: attach the same objects as when it was saved"
                )
        for name, model in self._parts["model"].items():
            differences = _differences(content["model"][name], model.state_dict())
            if differences:
                more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
                raise StateError(
                    f"{where}: saved state is of another model: {'; '.join(differences[:3])}{more}; build the"
                    " same model as when it was saved, or use another state folder"
                )


def _way(one: Any) -> str | None:
    if hasattr(one, "state_dict") and hasattr(one, "load_state_dict"):
        return "dict"
    if hasattr(one, "get_state") and hasattr(one, "set_state"):
        return "torch"
    if hasattr(one, "bit_generator"):
        return "numpy"
    return None


def _take(one: Any) -> Any:
    way = _way(one)
    if way == "torch":
        return one.get_state()
    return randomness.plain(one.bit_generator.state) if way == "numpy" else one.state_dict()


def _put(one: Any, state: Any) -> None:
    way = _way(one)
    if way == "torch":
        one.set_state(state)
    elif way == "numpy":
        one.bit_generator.state = randomness.rebuilt(state)
    else:
        one.load_state_dict(state)


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    found = [f"it has no {name}" for name in here if name not in there]
    found += [f"it has {name}, this one has not" for name in there if name not in here]
    for name in here:
        if name in there:
            old, new = _shape(there[name]), _shape(here[name])
            if old != new:
                found.append(f"{name} is {old} there, {new} here")
    return found


def _shape(value: Any) -> str:
    if not hasattr(value, "shape"):
        return type(value).__name__
    sizes = "x".join(map(str, value.shape)) or "scalar"
    return f"{sizes} {str(value.dtype).removeprefix('torch.')}"


def identity(model: Mapping[str, Any]) -> dict[str, str]:
    """What the bits of a result depend on beside the state: a run resumed under another may differ."""
    import torch

    devices = {
        str(p.device.type) for one in model.values() if hasattr(one, "parameters") for p in one.parameters()
    }
    kept = {
        "torch": str(torch.__version__),
        "CPU threads": str(torch.get_num_threads()),
        "CPU instructions": torch.backends.cpu.get_cpu_capability(),
        "device": "+".join(sorted(devices)) or "none",
    }
    if "cuda" in devices:
        kept["GPU"] = torch.cuda.get_device_name()
    return kept


def check_loadable(content: Any, what: str) -> None:
    """See that what will be saved can be loaded safely: when it is to be resumed it is too late.

    Raises
    ------
    StateError
    """
    import torch

    try:
        memory = io.BytesIO()
        torch.save(_hollow(content, torch), memory)
        memory.seek(0)
        torch.load(memory, weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError) as error:
        raise StateError(
            f"{what} has state that cannot be loaded safely: {_first_line(error)}; keep to numbers, text, tensors, and"
            " lists, tuples and dictionaries of them in state_dict"
        ) from None


def _hollow(value: Any, torch: Any) -> Any:
    """The same with empty tensors: what can be refused is what lies around them."""
    if type(value) is torch.Tensor or type(value) is torch.nn.Parameter:
        return torch.empty(0, dtype=value.dtype)
    if type(value) in (dict, list, tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        inside = {key: _hollow(item, torch) for key, item in items}
        return inside if isinstance(value, dict) else type(value)(inside.values())
    if type(value) is OrderedDict:
        return OrderedDict((key, _hollow(item, torch)) for key, item in value.items())
    return value


def load_content(path: Any) -> dict[str, Any]:
    """Read a saved state; nothing in it can run code.

    Raises
    ------
    StateError
    """
    import torch

    loads: Callable[..., Any] = torch.load
    try:
        content = loads(path, map_location="cpu", weights_only=True)
    except (pickle.PickleError, RuntimeError, EOFError, KeyError, ValueError) as error:
        raise StateError(f"{path}: saved state cannot be loaded: {_first_line(error)}") from None
    if not isinstance(content, dict) or "cotenant" not in content:
        raise StateError(f"{path}: a file of PyTorch, but no saved state of cotenant")
    return content


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
