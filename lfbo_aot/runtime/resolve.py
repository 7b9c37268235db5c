"""Look-ups as callers make them: `get_config` and `resolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import MissError
from lfbo_aot.runtime import memo
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
    from collections.abc import Mapping

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.runtime.lookup import Answer
    from lfbo_aot.runtime.request import Request

__all__ = ["Environment", "Resolution", "get_config", "resolve"]

_NAMED = memo.NAMED


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
    asked = memo.generation()
    if type(shape) is dict and policy is None and environment is None:
        kept = memo.recall(kernel, shape, arch)
        if kept is None:
            kept, names = _resolve(kernel, shape, arch, policy, environment)
            memo.keep(kernel, shape, arch, memo.Asked(asked, names), kept)
        return kept
    question = memo.question(kernel, shape, arch, policy, environment)
    if question is None:
        return _resolve(kernel, shape, arch, policy, environment)[0]
    found = memo.OTHER.get(question)
    # By identity: an environment can't be hashed, and the kernel wrapper gives one and the same.
    if found is not None and found[0] is environment:
        return found[1]
    resolution, _ = _resolve(kernel, shape, arch, policy, environment)
    memo.keep_other(question, environment, resolution, asked)
    return resolution


def _resolve(
    kernel: object,
    shape: object,
    arch: object,
    policy: str | None,
    environment: Environment | None,
) -> tuple[Resolution, tuple[str, ...]]:
    """The answer, and the names of the kernel's dims."""
    policy = state.policy() if policy is None else one_of("policy", policy, POLICIES)
    store = state.store()
    request = make_request(store, kernel, shape, arch, environment)
    answer = look_up(store, request, policy)
    if answer.resolution.status == DEFAULT and state.on_miss() == "tune":
        answer = _tuned(kernel, request, policy) or answer
    _tell(request, answer)
    return answer.resolution, tuple(request.shape)


def _tuned(kernel: object, request: Request, policy: str) -> Answer | None:
    """The answer after tuning what was missed; None where that can't be done."""
    from lfbo_aot.runtime.on_miss import tune_now

    module = getattr(getattr(kernel, "lfbo_aot_spec", None), "module", None)
    if not tune_now(request, module):
        return None
    state.refresh()
    return look_up(state.store(), request, policy)


def _tell(request: Request, answer: Answer) -> None:
    """Warn, once of each thing, of what a caller should know; MissError where that was asked for."""
    resolution = answer.resolution
    for error in answer.damage:
        warn_once(request.kernel_id, f"damaged: {error}")
    if resolution.status == DEFAULT:
        _missed(request, resolution)
        return
    for text in answer.misfits:  # of a default its reasons say so
        warn_once(request.kernel_id, text)
    if resolution.fresh is False:
        warn_once(request.kernel_id, "stale: " + "; ".join(resolution.reasons))


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
    it is empty, take `bound.config_spec.default_config()`. Where Helion's default won, it is the
    default at the bucket's tuning point (`resolve(...).entry.default` tells): those of the bucket's
    other shapes aren't known by name. A declared kernel with static shapes takes that of its call.
    """
    # As `memo.recall`, without the call: this is what a serving loop comes through.
    if type(shape) is dict and policy is None and environment is None:
        try:
            pick, dims, configs, _ = _NAMED[kernel][arch]
            if len(shape) == dims:
                return configs[pick(shape)]
        except (KeyError, TypeError):
            pass  # not asked before
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
