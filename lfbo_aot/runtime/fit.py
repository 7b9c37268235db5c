"""Whether a stored config is of a bound kernel's kind: types, lengths, and the space it is from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.runtime.resolution import EXACT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.runtime.resolution import Resolution

logger = logging.getLogger(__name__)

# Settings that change no code of a given config, and Helion's values for them.
_FOR_TUNERS: tuple[tuple[str, Any], ...] = (
    ("autotune_force_persistent", False),
    ("disable_autotuner_heuristics", False),
    ("allow_warp_specialize", True),
    ("autotune_search_acf", []),
)


def misfit(bound: Any, config: Mapping[str, Any]) -> str | None:
    """Why `config` is not of this bound kernel's kind; None where it is.

    Helion checks most values, and raises; but it takes a text for a number of warps, fills short
    lists up, and would run another config than the one stored.
    """
    spec = bound.config_spec
    normal = spec.normalized_config(dict(config)).config
    default = spec.default_config().config
    for key, value in config.items():
        if key not in normal:
            continue  # dropped where another key makes it meaningless
        like = default.get(key, normal[key])
        if not _alike(value, like):
            return f"{key}={value!r} should be like {like!r}"
        if isinstance(value, list) and len(value) != len(normal[key]):
            count = len(normal[key])
            return f"{key}={value!r} has {len(value)} values, and the kernel takes {count}"
    return None


def _alike(value: Any, like: Any) -> bool:
    """Whether two values of one tunable are of one type; None goes with any but a list."""
    if isinstance(like, list):
        if not isinstance(value, list):
            return False
        return all(_alike(item, like[0]) for item in value) if like else True
    if value is None or like is None:
        return not isinstance(value, list)
    return type(value) is type(like)


def other_space(
    bound: Any, spec: KernelSpec, args: Sequence[Any], resolution: Resolution
) -> str | None:
    """How the search space differs from the one that the entry was tuned in; None where it doesn't.

    Spaces differ by shape even within a bucket (a dim of size 1 has no block size; an order of the
    grid needs several blocks), and the default config, which counts, may differ by device. So they
    are compared where they must be equal: at the sizes that the entry was tuned at, on the device
    that it was tuned on. Everywhere else `misfit` alone decides, as it does for the interpreter's
    entries and under settings of Helion's that tune a part of the space.
    """
    from lfbo_aot.adapters.fragments import space_digest

    stored = getattr(resolution.entry, "space", None)
    if not stored or resolution.status != EXACT or _narrowed(bound.settings):
        return None
    device, _, box = resolution.key.partition("|")
    if device == INTERPRETER.name:
        return None
    try:
        if spec.shape_of(*args) != Bucket.parse(box).point:
            return None
        here = space_digest(bound)
    except Exception:
        # What can't be compared isn't a difference; the config is checked by itself.
        logger.debug("kernel %s: its space isn't compared", spec.kernel_id, exc_info=True)
        return None
    return None if here == stored else f"space: entry={stored} here={here}"


def _narrowed(settings: Any) -> bool:
    """Whether a setting for Helion's tuner leaves a part of the space out, or moves its default."""
    return any(getattr(settings, name, usual) != usual for name, usual in _FOR_TUNERS)
