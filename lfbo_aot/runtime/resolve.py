"""Look-ups as callers make them: `get_config` and `resolve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import MissError
from lfbo_aot.runtime import settings
from lfbo_aot.runtime import state
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.lookup import look_up
from lfbo_aot.runtime.misses import record_miss
from lfbo_aot.runtime.notices import warn_once
from lfbo_aot.runtime.request import make_request
from lfbo_aot.runtime.resolution import DEFAULT
from lfbo_aot.runtime.resolution import Resolution
from lfbo_aot.runtime.settings import POLICIES
from lfbo_aot.runtime.settings import one_of

if TYPE_CHECKING:
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.runtime.request import Request

__all__ = ["Environment", "Resolution", "get_config", "resolve"]

_MOST_KEPT = 1 << 14
_PLAIN = frozenset((int, str, bool))


def resolve(
    kernel: object,
    shape: object,
    arch: str | DeviceId | None = None,
    *,
    policy: str | None = None,
    environment: Environment | None = None,
) -> Resolution:
    """The config for a kernel at a shape on an arch, and how it was found.

    `kernel` is a name, full or bare, or a declared kernel. `shape` is a mapping of dims, a tuple of
    their values in declared order, or, with a declared kernel, the call's live arguments. `arch` is
    written `sm90/NVIDIA H200`, or `sm90` for the best-known config of any device of it; left out, it
    is that of the tensors, else of torch's current device.

    Where nothing can be served the status is `default`, and one warning for each reason says why.
    Raises UnknownNameError, AmbiguousKernelError, ShapeError or DeviceUnavailableError where the
    question is wrong, SettingError for an unknown policy, MissError where `on_miss` is `error`.
    """
    memo = state.memo()
    asked = _memo_key(kernel, shape, arch, policy) if environment is None else None
    if asked is not None:
        kept = memo.get(asked)
        if kept is not None:
            return kept
    policy = state.policy() if policy is None else one_of("policy", policy, POLICIES)
    store = state.store()
    request = make_request(store, kernel, shape, arch, environment)
    resolution, damage, misfits = look_up(store, request, policy)
    for error in damage:
        warn_once(request.kernel_id, f"damaged: {error}")
    if resolution.status != DEFAULT:  # else its reasons say so
        for text in misfits:
            warn_once(request.kernel_id, text)
    if resolution.status == DEFAULT:
        _missed(request, resolution)
    elif resolution.fresh is False:
        warn_once(request.kernel_id, "stale: " + "; ".join(resolution.reasons))
    if asked is not None:
        if len(memo) >= _MOST_KEPT:
            memo.clear()
        memo[asked] = resolution
    return resolution


def get_config(
    kernel: object,
    shape: object,
    arch: str | DeviceId | None = None,
    *,
    policy: str | None = None,
    environment: Environment | None = None,
) -> Mapping[str, Any]:
    """The config for a kernel at a shape on an arch, read-only; empty and false for the default.

    Takes and raises what `resolve` does. `helion.Config(**config)` makes a Helion config of it; where
    it is empty, take `bound.config_spec.default_config()`.
    """
    return resolve(kernel, shape, arch, policy=policy, environment=environment).config


def _missed(request: Request, resolution: Resolution) -> None:
    kernel_id = request.kernel_id
    path = settings.current().record_misses
    if path is not None:
        record_miss(path, request)
    on_miss = state.on_miss()
    if on_miss == "error":
        reasons = "; ".join(resolution.reasons)
        msg = f"kernel {kernel_id!r}: {reasons} (raised, as on_miss is 'error')"
        raise MissError(msg)
    for reason in resolution.reasons:
        if not reason.startswith("damaged:"):
            warn_once(kernel_id, reason)
    if on_miss == "tune":
        warn_once(kernel_id, "on_miss=tune: this version can't tune on a miss; serves the default")


def _memo_key(kernel: object, shape: object, arch: object, policy: str | None) -> object:
    """What equal questions have in common; None where the answer depends on more than is written."""
    if not isinstance(arch, str):
        return None
    who = kernel if isinstance(kernel, str) else getattr(kernel, "lfbo_aot_spec", None)
    names: tuple[object, ...] | None = None
    if isinstance(shape, Mapping):
        names, shape = tuple(shape), tuple(shape.values())
    if not isinstance(shape, tuple):
        return None
    # Types are part of it: True equals 1, and isn't the same value of a dim.
    types = tuple(map(type, shape))
    if not _PLAIN.issuperset(types) and not all(t.__name__ == "dtype" for t in {*types} - _PLAIN):
        return None
    return who, names, shape, types, arch, policy
