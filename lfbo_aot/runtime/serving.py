"""Stored configs for a Helion kernel: looked up when Helion binds a new specialisation.

Helion's `Kernel.__call__` goes through attributes of the instance, so one of the same name is where
a config can be set before Helion thinks of tuning. The bound kernel is then run as any other, and
later calls of the same specialisation don't come here.
"""

from __future__ import annotations

import contextlib
import json
import logging
from contextvars import ContextVar
from functools import lru_cache
from functools import partial
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.frozen import thaw
from lfbo_aot.errors import ShapeError
from lfbo_aot.registry.layout import tensors_in
from lfbo_aot.runtime.dispatch import DYNAMIC
from lfbo_aot.runtime.dispatch import Dispatch
from lfbo_aot.runtime.dispatch import is_symbolic
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.fit import misfit
from lfbo_aot.runtime.fit import other_space
from lfbo_aot.runtime.notices import warn_once
from lfbo_aot.runtime.prepared import prepare
from lfbo_aot.runtime.traced import lowered_symbolic
from lfbo_aot.runtime.trial import why_not_run
from lfbo_aot.runtime.versions import loaded_versions

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterator
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.runtime.resolution import Resolution

logger = logging.getLogger(__name__)

_unserved: ContextVar[bool] = ContextVar("lfbo_aot_unserved", default=False)
_helions: ContextVar[bool] = ContextVar("lfbo_aot_helions_tuner", default=False)
MISFIT = "doesn't fit"
_OF_SIZES = (MISFIT, "InvalidConfig", "out of resource", "OutOfResources", "out of memory")
_SYMBOLIC = f"{DYNAMIC}: sizes are symbols (torch.compile, dynamic shapes); serves Helion's default"


@contextlib.contextmanager
def unserved() -> Iterator[None]:
    """Within it, this thread binds kernels without looking a config up: for tuning."""
    token = _unserved.set(True)
    try:
        yield
    finally:
        _unserved.reset(token)


def unserved_bind(kernel: Any, args: Sequence[Any]) -> Any:
    """The `BoundKernel` of these arguments; no stored config is set on it by this call."""
    with unserved():
        return type(kernel).bind(kernel, tuple(args))


def serve(kernel: Any, spec: KernelSpec) -> None:
    """Make `kernel` look configs up by `spec` from now on, in place of what it did before."""
    serving = Serving(kernel, spec)
    kernel.lfbo_aot_spec = spec
    kernel.lfbo_aot_serving = serving
    kernel.bind = serving.bind
    kernel.prepare = partial(prepare, kernel)
    kernel.unserved_bind = partial(unserved_bind, kernel)
    serving.hook("_create_bound_kernel_cache_key", serving.before_cached)
    serving.hook("_bind", serving.bind_shared)
    serving.hook("_bind_isolated", serving.bind_isolated)
    for name in ("autotune", "autotune_multi"):
        serving.hook(name, serving.tune)


class Serving:
    """One kernel's look-ups, and the configs that failed in this process."""

    def __init__(self, kernel: Any, spec: KernelSpec) -> None:
        before = getattr(kernel, "lfbo_aot_serving", None)
        self.author_key = kernel._key_fn if before is None else before.author_key  # noqa: SLF001
        self._kernel = kernel
        self._spec = spec
        self._bad: set[str] = set()
        self._told: set[str] = set()
        self._shape_failed = False
        self._environments: dict[Any, Environment] = {}
        self._dispatch = Dispatch(kernel, spec, self.resolve, self.author_key)
        # What Helion's tuner finds is for calls, so it binds with their key.
        self._dispatch.tuning = lambda: not (self._serves() or _helions.get())

    def hook(self, name: str, instead: Callable[..., Any]) -> None:
        """Have `instead` called in place of a method, which it is given first."""
        original = getattr(type(self._kernel), name, None)
        if original is not None:
            setattr(self._kernel, name, partial(instead, partial(original, self._kernel)))

    def bind(self, args: tuple[Any, ...]) -> Any:
        """What Helion binds, with its config set; as it comes where tuning was asked for."""
        import torch

        original = type(self._kernel).bind
        if torch.compiler.is_compiling():
            return original(self._kernel, args)  # traced: neither locks nor files are for it
        bound = original(self._kernel, args)
        if bound._config is None and self._serves():  # noqa: SLF001 - Helion has no public reader
            # One lock for all: Helion may bind while it compiles, and compile while it binds.
            with self._kernel._bind_lock:  # noqa: SLF001
                self._set_config(bound, args)
        return bound

    def bind_shared(self, original: Callable[..., Any], args: Any) -> Any:
        """Helion's `_bind`, with the key settled first; for symbolic sizes a bound kernel apart.

        Inductor calls it with example tensors, whose sizes stand for any.
        """
        with contextlib.suppress(TypeError):  # Helion says better what is wrong with them
            self._dispatch.settle(self._kernel.normalize_args(*args))
        if lowered_symbolic(self._kernel, args) and self._serves():
            return self._kernel._bind_isolated(tuple(args))  # noqa: SLF001
        return original(args)

    def before_cached(
        self, original: Callable[..., Any], bound: Any, args: Any, *more: Any, **named: Any
    ) -> Any:
        """Set the config before Helion derives from it what else a specialisation depends on."""
        if getattr(bound, "_cache_managed", False) and self._serves():
            self._set_config(bound, args)
        return original(bound, args, *more, **named)

    def bind_isolated(self, original: Callable[..., Any], args: Any, **more: Any) -> Any:
        """Helion's `_bind_isolated`, whose result sets its config when first asked for it."""
        import torch

        bound = original(args, **more)
        if not torch.compiler.is_compiling() and self._serves():
            helions = bound.ensure_config_exists

            def ensure_config_exists(given: Sequence[Any]) -> None:
                self._set_config(bound, tuple(given), symbolic=lowered_symbolic(self._kernel, args))
                helions(given)

            bound.ensure_config_exists = ensure_config_exists
        return bound

    def tune(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Helion's own tuner, asked for by its name; calls run what it finds."""
        token = _helions.set(True)
        try:
            return original(*args, **kwargs)
        finally:
            _helions.reset(token)

    def resolve(self, args: tuple[Any, ...]) -> Resolution:
        """The answer for a call with these arguments."""
        from lfbo_aot.runtime.request import Live
        from lfbo_aot.runtime.resolve import resolve

        return resolve(self._kernel, Live(args), environment=self._environment(args))

    def _environment(self, args: Sequence[Any]) -> Environment:
        from lfbo_aot.runtime.hardware import limits_here

        device = next((tensor.device for tensor in tensors_in(args)), None)
        found = self._environments.get(device)
        if found is None:
            found = self._environments[device] = Environment(
                source=self._spec.source,
                settings=self._spec.settings,
                versions=_versions(),
                limits=None if device is None else limits_here(device),
            )
        return found

    def _serves(self) -> bool:
        settings = self._kernel.settings
        interpreted_by_torch = getattr(settings.ref_mode, "name", "OFF") != "OFF"
        asked_for = settings.force_autotune or _helions.get()
        return not (asked_for or interpreted_by_torch or _unserved.get())

    def _set_config(self, bound: Any, args: tuple[Any, ...], *, symbolic: bool = False) -> None:
        """Set the first stored config that works, or the default; one warning where some fail."""
        if bound._config is not None:  # noqa: SLF001
            return
        args = self._kernel.normalize_args(*args)
        resolution = None
        if symbolic or is_symbolic(args):
            warn_once(self._spec.kernel_id, _SYMBOLIC)
        else:
            resolution = self._looked_up(args)
        failed: list[str] = []
        if resolution is not None and resolution.config:
            space = other_space(bound, self._spec, args, resolution)
            if space is None and self._set_first(bound, args, resolution, failed):
                return
            if space is not None:  # a fault of the whole entry, alternates and all
                left = f"{resolution.key} isn't used, Helion's default is served"
                warn_once(self._spec.kernel_id, f"{space}; {left}")
        self._set_default(bound)
        self._warn(failed, "Helion's default")

    def _set_first(
        self, bound: Any, args: tuple[Any, ...], resolution: Resolution, failed: list[str]
    ) -> bool:
        """Set what the entry says, or its first alternate that works; whether one does."""
        alternates = getattr(resolution.entry, "alternates", None) or ()
        for count, config in enumerate([_winner(bound, resolution), *alternates]):
            plain = thaw(config)
            text = json.dumps(plain, sort_keys=True, default=str)
            if text in self._bad:
                continue
            reason = self._why_not_set(bound, plain, args)
            if reason is None:
                self._warn(failed, f"its alternate number {count}" if count else "it")
                return True
            if not depends_on_sizes(reason):
                self._bad.add(text)
            if text not in self._told:  # once for all sizes that it fails at
                self._told.add(text)
                failed.append(f"{text}: {reason}")
        return False

    def _why_not_set(
        self, bound: Any, config: Mapping[str, Any], args: Sequence[Any]
    ) -> str | None:
        """Set `config` on `bound`, and None; or why that failed."""
        try:
            reason = misfit(bound, config)
            if reason is not None:
                return f"{MISFIT}: {reason}"
            function = bound.compile_config(dict(config), allow_print=False)
            reason = why_not_run(self._spec, function, args)
            if reason is None:
                bound.set_config(dict(config))
        except Exception as error:  # noqa: BLE001 - Helion raises of many kinds; another is tried
            return f"{type(error).__name__}: {error}"
        return reason

    def _looked_up(self, args: tuple[Any, ...]) -> Resolution | None:
        from lfbo_aot.runtime import state

        try:
            return self.resolve(args)
        except ShapeError as error:
            # A fault of the declaration isn't one of the call, which needs no stored config.
            if state.on_miss() == "error":
                raise
            if not self._shape_failed:  # one warning for all calls, whose values differ
                self._shape_failed = True
                warn_once(self._spec.kernel_id, f"shape: {error}; Helion's default is served")
            return None

    def _warn(self, failed: Sequence[str], served: str) -> None:
        if failed:
            logger.warning(
                "kernel %s: a stored entry can't be used as it is, and %s is served instead. "
                "Said once in this process: %s",
                self._spec.kernel_id,
                served,
                "; ".join(failed),
            )

    def _set_default(self, bound: Any) -> None:
        if bound.configs:
            return  # the author of a registered kernel chose: Helion takes that
        try:
            bound.set_config(bound.config_spec.default_config())
        except Exception:
            # Not the look-up's fault: the call goes Helion's way, and raises there if it must.
            logger.debug("kernel %s: no default", self._spec.kernel_id, exc_info=True)


def _winner(bound: Any, resolution: Resolution) -> Mapping[str, Any]:
    """The config that an entry says won; where the default did, the one of these very sizes.

    What the entry holds is the default at the shape that it was tuned at, and Helion may have
    another one at the bucket's other shapes. With dynamic shapes it is served to them all: they
    share a bound kernel, whose own default would be that of whichever shape was called first.
    """
    if getattr(resolution.entry, "default", False) and bound.settings.static_shapes:
        try:
            own: Mapping[str, Any] = bound.config_spec.default_config().config
        except Exception:
            # Then the stored one is tried, as any other.
            logger.debug("no default at these sizes", exc_info=True)
        else:
            return own
    return resolution.config


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return loaded_versions()


def depends_on_sizes(reason: str) -> bool:
    """Whether a config that failed for this reason may work at other sizes of the same bucket.

    Else it isn't tried again in the process. Were these not tried again either, what a call runs
    would depend on the calls before it.
    """
    return any(text.lower() in reason.lower() for text in _OF_SIZES)
