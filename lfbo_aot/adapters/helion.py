"""The seam to Helion: spaces, configs, generated code and launches of one bound kernel.

Everything here works on a `BoundKernel`, in the process that bound it. Nothing else in the package
imports `helion.autotuner` or `helion._compiler`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.adapters.fragments import bounds
from lfbo_aot.adapters.fragments import choices
from lfbo_aot.adapters.fragments import frozen as _frozen
from lfbo_aot.adapters.fragments import slot_names
from lfbo_aot.adapters.launching import Launch
from lfbo_aot.adapters.launching import launches
from lfbo_aot.search.space import Choice
from lfbo_aot.search.space import Condition
from lfbo_aot.search.space import Integer
from lfbo_aot.search.space import ListOf
from lfbo_aot.search.space import Permutation
from lfbo_aot.search.space import Point
from lfbo_aot.search.space import PowerOfTwo
from lfbo_aot.search.space import Space
from lfbo_aot.search.space import Tunable

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping
    from collections.abc import Sequence

__all__ = [
    "Config",
    "GeneratedCode",
    "InvalidConfigError",
    "Launch",
    "SpaceCodec",
    "bind",
    "code_digest",
    "default_config",
    "generate",
    "launches",
    "load",
    "precompiler",
    "run",
    "seed_everything",
    "versions",
]

Config = dict[str, Any]
_MOST_PARENT_VALUES = 16
_EVIDENCE = 3  # sightings of each value of a parent that a condition rests on


class InvalidConfigError(ValueError):
    """A point of the space that Helion refuses to turn into a config."""


def bind(kernel: Any, args: Sequence[Any]) -> Any:
    """The `BoundKernel` of these arguments, with no stored config set on it.

    Kernels declared with lfbo-aot look a config up when they are bound; the tuner must not.
    """
    unserved = getattr(kernel, "unserved_bind", None)
    return type(kernel).bind(kernel, tuple(args)) if unserved is None else unserved(tuple(args))


def default_config(bound: Any) -> Config:
    """Helion's own default at this shape: the compiler's promoted seed where it has one."""
    return _json_config(bound.config_spec.default_config())


def _json_config(config: Any) -> Config:
    """A plain, JSON-able copy of a `helion.Config`, its keys sorted."""
    plain: Config = json.loads(json.dumps(dict(sorted(config.config.items()))))
    return plain


class SpaceCodec:
    """One bound kernel's search space as a pure `Space`, and the way from its points to configs.

    `fixed` holds config keys that are not searched, with the value that they take. Tunables that
    have a single value, or that Helion ignores because of `fixed`, are left out of the space too.
    """

    def __init__(self, bound: Any, fixed: Mapping[str, Any] | None = None) -> None:
        self._generation = bound.config_spec.create_config_generation()
        self._spec = bound.config_spec
        self._default = self._generation.flatten(bound.config_spec.default_config())
        self._slots: list[int] = []
        self._pinned: dict[int, Any] = {}
        tunables = self._tunables(fixed or {})
        draft = Space(tunables, self._point(self._default))
        watched = _Watched(draft, self._canonical)
        if fixed and watched.ignored:
            self._slots = [s for i, s in enumerate(self._slots) if i not in watched.ignored]
            tunables = tuple(t for i, t in enumerate(tunables) if i not in watched.ignored)
        self.space = Space(tunables, self._point(self._default), watched.conditions())
        self.space = replace(self.space, seeds=self._seeds())

    def _tunables(self, fixed: Mapping[str, Any]) -> tuple[Tunable, ...]:
        """Those that are searched; fills `_slots` with their places, `_pinned` with fixed values."""
        tunables: list[Tunable] = []
        for slot, name in enumerate(slot_names(self._spec)):
            key = name.partition("[")[0]
            if key in fixed:
                self._pinned[slot] = fixed[key]
                continue
            tunable = _tunable(name, self._generation.flat_spec[slot], self._default[slot])
            if tunable is not None:
                self._slots.append(slot)
                tunables.append(tunable)
        return tuple(tunables)

    def keep(self, inert: Sequence[tuple[str, int]]) -> None:
        """Search these places no more: they make no difference to the code."""
        self.space = replace(self.space, inert=tuple(inert))

    def config(self, point: Point) -> Config:
        """The canonical config of a point, JSON-able; raises `InvalidConfigError`."""
        from helion import exc

        flat = self._flat(point)
        try:
            config = self._generation.unflatten(flat)
        except exc.InvalidConfig as e:
            raise InvalidConfigError(str(e)) from e
        return _json_config(config)

    def point(self, config: Mapping[str, Any]) -> Point:
        """The canonical point of a config; raises `InvalidConfigError` where it doesn't fit."""
        import helion

        unknown = config.keys() - {key for key, _, _ in self._spec.flat_key_layout()}
        if unknown:
            msg = f"config doesn't fit this space: no tunable {', '.join(sorted(unknown))}"
            raise InvalidConfigError(msg)
        try:
            flat = self._generation.flatten(helion.Config(**config))
            point = self.space.canonical(self._point(flat))
        except (ValueError, TypeError, AssertionError, KeyError) as e:
            msg = f"config doesn't fit this space: {e}"
            raise InvalidConfigError(msg) from e
        except helion.exc.InvalidConfig as e:
            raise InvalidConfigError(str(e)) from e
        return point

    def fitting(self, configs: Sequence[Mapping[str, Any]]) -> tuple[Point, ...]:
        """The points of those configs that fit: another bucket's winner need not."""
        points = []
        for config in configs:
            with contextlib.suppress(InvalidConfigError):
                points.append(self.point(config))
        return tuple(dict.fromkeys(points))

    def _point(self, flat: Sequence[Any]) -> Point:
        return tuple(_frozen(flat[slot]) for slot in self._slots)

    def _flat(self, point: Point) -> list[Any]:
        flat = [_thawed(value) for value in self._default]
        for slot, value in self._pinned.items():
            flat[slot] = _thawed(value)
        for slot, value in zip(self._slots, point, strict=True):
            flat[slot] = _thawed(value)
        return flat

    def _canonical(self, point: Point) -> Point | None:
        """The point of the config that Helion makes of `point`; None where it refuses."""
        from helion import exc

        try:
            flat, _ = self._generation.canonicalize_flat(self._flat(point))
        except (exc.InvalidConfig, ValueError, TypeError, AssertionError, KeyError):
            return None
        return self._point(flat)

    def _seeds(self) -> tuple[Point, ...]:
        points = []
        for flat, _ in self._generation.seed_flat_config_pairs():
            with contextlib.suppress(ValueError):  # a seed may lie outside what is searched
                points.append(self.space.canonical(self._point(flat)))
        return tuple(points)


class _Watched:
    """What Helion ignores when, learnt by watching it normalise random points.

    A tunable that Helion resets to its default for some values of another one and keeps for all
    others depends on that one. What no single parent explains is left unconditioned: such points
    come back as duplicates.
    """

    def __init__(
        self, draft: Space, canonical: Callable[[Point], Point | None], samples: int = 240
    ) -> None:
        import numpy as np

        self._draft = draft
        self._kept: dict[int, list[Point]] = {}
        self._reset: dict[int, list[Point]] = {}
        rng = np.random.default_rng(0)
        for _ in range(samples):
            point = draft.sample(rng)
            normal = canonical(point)
            if normal is None:
                continue
            for i, tunable in enumerate(draft.tunables):
                if point[i] != tunable.default:
                    seen = self._kept if point[i] == normal[i] else self._reset
                    seen.setdefault(i, []).append(point)

    @property
    def ignored(self) -> set[int]:
        """The tunables whose value never counted."""
        return {i for i in self._reset if i not in self._kept}

    def conditions(self) -> tuple[Condition, ...]:
        """One for each tunable that has a parent, by name: they hold in a smaller space as well."""
        found = (self._condition(child) for child in sorted(self._reset) if child in self._kept)
        return tuple(condition for condition in found if condition is not None)

    def _condition(self, child: int) -> Condition | None:
        for parent, tunable in enumerate(self._draft.tunables):
            # Among many values the two groups would be disjoint by chance.
            if parent == child or tunable.size > _MOST_PARENT_VALUES:
                continue
            off = Counter(point[parent] for point in self._reset[child])
            on = Counter(point[parent] for point in self._kept[child])
            if not off.keys() & on.keys() and min([*off.values(), *on.values()]) >= _EVIDENCE:
                values = tuple(v for v in tunable.values() if v not in off)
                return Condition(self._draft.tunables[child].name, tunable.name, values)
        return None


def _thawed(value: Any) -> Any:
    return [_thawed(v) for v in value] if isinstance(value, list | tuple) else value


def _tunable(name: str, fragment: Any, default: Any) -> Tunable | None:
    """The tunable that stands for one of Helion's fragments; None where it has a single value.

    `default` is the value in the default config, which may lie outside what Helion searches.
    """
    from helion.autotuner import config_fragment as f

    if isinstance(fragment, f.ListOf):
        if not fragment.length:
            return None
        inner = _scalar(name, fragment.inner, fragment.inner.default())
        return ListOf(name, inner, fragment.length) if inner is not None else None
    return _scalar(name, fragment, default)


def _scalar(
    name: str, fragment: Any, default: Any
) -> PowerOfTwo | Integer | Choice | Permutation | None:
    from helion.autotuner import config_fragment as f

    if isinstance(fragment, f.PowerOfTwoFragment):
        role = {f.Category.BLOCK_SIZE: "block", f.Category.NUM_WARPS: "warps"}
        low, high = bounds(fragment, default)
        if low == high:
            return None
        return PowerOfTwo(name, low, high, fragment.default(), role.get(fragment.category(), ""))
    if isinstance(fragment, f.BaseIntegerFragment):
        low, high = bounds(fragment, default)
        return Integer(name, low, high, fragment.default()) if low < high else None
    if isinstance(fragment, f.BooleanFragment):
        return Choice(name, (False, True), fragment.default())
    if isinstance(fragment, f.EnumFragment):
        kept = choices(fragment, default)
        return Choice(name, kept, _frozen(fragment.default())) if len(kept) > 1 else None
    if isinstance(fragment, f.PermutationFragment):
        return Permutation(name, fragment.length) if fragment.length > 1 else None
    msg = f"tunable {name}: no counterpart for Helion's {type(fragment).__name__}"
    raise NotImplementedError(msg)


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """The Python module that Helion generated for one config."""

    path: str
    function: str
    digest: str


def generate(bound: Any, config: Mapping[str, Any]) -> tuple[Callable[..., Any], GeneratedCode]:
    """The host function of a config, loaded, and where its module lies.

    The same config gives the same module text in every process, so that Triton's cache, whose key
    is made from that text, holds what another process compiled.
    """
    import helion

    helion_config = helion.Config(**config)
    function = bound.compile_config(helion_config, allow_print=False)
    path = bound.get_cached_path(helion_config) or function.__code__.co_filename
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    return function, GeneratedCode(path, function.__name__, digest)


def code_digest(bound: Any, config: Mapping[str, Any]) -> str:
    """A digest of the module text of a config, which is generated and not loaded."""
    import helion

    text: str = bound.to_triton_code(helion.Config(**config))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(code: GeneratedCode) -> Callable[..., Any]:
    """The host function of a module that another process generated."""
    from torch._inductor.codecache import PyCodeCache

    module = PyCodeCache.load_by_key_path(code.digest, code.path)
    function: Callable[..., Any] = getattr(module, code.function)
    return function


def precompiler(launch: Launch, bound: Any, config: Mapping[str, Any]) -> Callable[[], bool]:
    """A function that compiles a launch's kernel into Triton's cache and touches no device.

    What needs the driver (target, specialisation, options) is settled here, so the result may be
    called in a forked child, where CUDA can't be used. It ends that child with status 1 on failure.
    """
    import helion
    from helion.runtime.precompile_shim import make_precompiler

    make = make_precompiler(launch.kernel, helion.Config(**config), bound)
    finish: Callable[[], bool] = make(*launch.args, **launch.kwargs)
    return finish


def run(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """What `function(*args)` returns, and the compiled kernels that it launched."""
    from helion.runtime import default_launcher

    compiled: list[Any] = []

    def keep(*args: Any, **kwargs: Any) -> Any:
        kernel = default_launcher(*args, **kwargs)
        compiled.append(kernel)
        return kernel

    return function(*args, _launcher=keep), compiled


def versions() -> dict[str, str]:
    """The versions of the loaded libraries, as entries record them."""
    import helion
    import torch
    import triton

    runtime = torch.version.cuda or torch.version.hip or "none"
    return {
        "helion": str(getattr(helion, "__version__", "")) or _distribution_version("helion"),
        "triton": triton.__version__,
        "torch": torch.__version__.partition("+")[0],
        "runtime": str(runtime),
    }


def _distribution_version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


def seed_everything(seed: int) -> None:
    """Fix the random state that Helion and user code may draw on in this process."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
