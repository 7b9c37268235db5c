"""The digest of a bound kernel's search space, without the search: no numpy is needed.

`SpaceCodec(bound).space.digest` is the same text; serving can't load what that needs.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

Signature = list[Any]


def space_digest(bound: Any) -> str:
    """`sha256:...` of each tunable's name, kind, length and choices, as entries record it."""
    spec = bound.config_spec
    generation = spec.create_config_generation()
    default = generation.flatten(spec.default_config())
    found = []
    for slot, name in enumerate(slot_names(spec)):
        signature = _signature(name, generation.flat_spec[slot], default[slot])
        if signature is not None:
            found.append(signature)
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def slot_names(spec: Any) -> list[str]:
    """The name of each value of a flat config: `block_sizes[0]`, `num_warps` ..."""
    names: list[str] = []
    for key, count, is_sequence in spec.flat_key_layout():
        names += [f"{key}[{i}]" for i in range(count)] if is_sequence else [key] * count
    return names


def _signature(name: str, fragment: Any, default: Any) -> Signature | None:
    """What counts of one of Helion's fragments; None where it has a single value."""
    from helion.autotuner import config_fragment as f

    if isinstance(fragment, f.ListOf):
        if not fragment.length:
            return None
        inner = _scalar(name, fragment.inner, fragment.inner.default())
        return inner and ["list", name, fragment.length, inner]
    return _scalar(name, fragment, default)


def _scalar(name: str, fragment: Any, default: Any) -> Signature | None:
    from helion.autotuner import config_fragment as f

    for kind, label in ((f.PowerOfTwoFragment, "power_of_two"), (f.BaseIntegerFragment, "integer")):
        if isinstance(fragment, kind):
            low, high = bounds(fragment, default)
            return [label, name] if low < high else None
    if isinstance(fragment, f.BooleanFragment):
        return ["choice", name, [False, True]]
    if isinstance(fragment, f.EnumFragment):
        kept = choices(fragment, default)
        return ["choice", name, list(kept)] if len(kept) > 1 else None
    if isinstance(fragment, f.PermutationFragment):
        return ["permutation", name, fragment.length] if fragment.length > 1 else None
    msg = f"tunable {name}: no counterpart for Helion's {type(fragment).__name__}"
    raise NotImplementedError(msg)


def bounds(fragment: Any, default: Any) -> tuple[int, int]:
    """What is searched, and the value of the default config, which is tried first.

    Helion searches no small blocks where the grid would grow large, and yet may default to one.
    """
    kept = (int(fragment.low), int(fragment.high), int(fragment.default()), int(default))
    return min(kept), max(kept)


def choices(fragment: Any, default: Any) -> tuple[Any, ...]:
    """The choices of an `EnumFragment`, lists as tuples.

    What an inactive one is reset to, and what the default config has, are choices too.
    """
    found = fragment.choices if fragment.search_choices is None else fragment.search_choices
    return tuple(dict.fromkeys(frozen(c) for c in [*found, fragment.default(), default]))


def frozen(value: Any) -> Any:
    """`value` with its lists as tuples."""
    return tuple(frozen(v) for v in value) if isinstance(value, list | tuple) else value
