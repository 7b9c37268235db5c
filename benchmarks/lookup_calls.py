"""Host time of a call: a kernel served by lfbo-aot against the same with its config fixed by hand.

    python benchmarks/lookup_calls.py            one line of JSON for each record

On a GPU the calls launch, in blocks too small to fill the queue, and the device is awaited between
blocks. Elsewhere the compiled functions are empty, so that only what Helion and lfbo-aot do before
them is timed; such records say `"device": "none"`.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import statistics
import time
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 400  # in a block; a GPU's queue holds about a thousand launches
ROUNDS = 15
KERNELS = ("layer_norm", "softmax")
ROWS = (1024, 4096)
WIDTH = 4096


def host_times(
    kernels: tuple[str, ...] = KERNELS, rounds: int = ROUNDS, calls: int = CALLS
) -> list[dict[str, Any]]:
    """Raw records, one for each kernel and way of calling it; times in us a call.

    The ways are measured in turn, block by block, so that what slows the host slows all of them:
    `bare` is Helion's compiled function, `fixed` a Helion kernel with the config in its decorator,
    `served` ours, `prepared` the function that `prepare` made of ours; `-alternating` calls two
    shapes in turn. Each record holds the blocks' times, their minimum and their median.
    """
    device = _device()
    records: list[dict[str, Any]] = []
    for name in kernels:
        ways = _ways(name, device)
        blocks: dict[str, list[float]] = {way: [] for way in ways}
        for call in ways.values():
            _time_us(call, 20, device)
        for _ in range(rounds):
            for way, call in ways.items():
                blocks[way].append(_time_us(call, calls, device))
        records += [
            {
                "kernel": name,
                "way": way,
                "device": _device_name(device),
                "calls": calls,
                "min_us": round(min(times), 3),
                "median_us": round(statistics.median(times), 3),
                "blocks_us": [round(t, 3) for t in times],
            }
            for way, times in blocks.items()
        ]
    return records


def figures(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is claimed: medians over the rounds of what two ways differ by within a round.

    `repeated_more_us` is what a call of ours takes beyond one of the kernel with a fixed config;
    `alternating_ratio` the quotient of the two where shapes alternate; `prepare_share` what
    `prepare` adds to the compiled function as a share of what Helion's own call adds.
    """
    found = []
    for name in dict.fromkeys(record["kernel"] for record in records):
        blocks = {r["way"]: r["blocks_us"] for r in records if r["kernel"] == name}
        alternating = zip(blocks["served-alternating"], blocks["fixed-alternating"], strict=True)
        found.append(
            {
                "kernel": name,
                "repeated_more_us": round(_more(blocks["served"], blocks["fixed"]), 3),
                "alternating_ratio": round(statistics.median(a / b for a, b in alternating), 3),
                "prepare_share": round(
                    _more(blocks["prepared"], blocks["bare"])
                    / _more(blocks["fixed"], blocks["bare"]),
                    3,
                ),
            }
        )
    return found


def _more(these: list[float], those: list[float]) -> float:
    return statistics.median(a - b for a, b in zip(these, those, strict=True))


def _ways(name: str, device: str) -> dict[str, Callable[[], Any]]:
    import helion

    from lfbo_aot.registry.discovery import load_kernels

    ours: Any = next(spec.kernel for spec in load_kernels() if spec.name == name)
    first, second = (_arguments(ours, rows, device) for rows in ROWS)
    # The config that is served at the first shape, so that both launch the same binary there.
    config = ours.bind(first)._config  # noqa: SLF001 - Helion has no public reader
    fixed = helion.kernel(config=config, static_shapes=True)(ours.fn)
    alike = helion.kernel(config=config, static_shapes=True)(ours.fn)
    prepared = ours.prepare(*first)
    for kernel in (ours, fixed, alike):
        kernel.bind(first).ensure_config_exists(first)
    bare = fixed.bind(first)._run  # noqa: SLF001
    if device == "cpu":
        bare = _nothing
        for kernel in (ours, fixed, alike):
            for args in (first, second):
                bound = kernel.bind(args)
                bound.ensure_config_exists(args)
                bound._run = _nothing  # noqa: SLF001
        prepared = ours.prepare(*first)

    def alternating(kernel: Any) -> Callable[[], Any]:
        turns = [first, second]

        def call() -> None:
            turns.reverse()
            kernel(*turns[0])

        return call

    return {
        "bare": functools.partial(bare, *first),
        "fixed": functools.partial(fixed, *first),
        "served": functools.partial(ours, *first),
        "prepared": functools.partial(prepared, *first),
        # A kernel of its own: Helion's fast path is for the last shape called.
        "fixed-alternating": alternating(alike),
        "served-alternating": alternating(ours),
    }


def _nothing(*args: Any) -> None:
    """In place of a compiled function where there is no device to launch on."""


def _arguments(kernel: Any, rows: int, device: str) -> tuple[Any, ...]:
    dtype = "bfloat16" if device == "cuda" else "float32"
    shape = {"m": rows, "n": WIDTH, "dtype": dtype}
    return tuple(kernel.normalize_args(*kernel.lfbo_aot_spec.make_inputs(shape, device)))


def _time_us(call: Callable[[], Any], calls: int, device: str) -> float:
    gc_was_on = gc.isenabled()
    gc.disable()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    taken = time.perf_counter() - began
    if gc_was_on:
        gc.enable()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return 1e6 * taken / calls


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    os.environ.setdefault("TRITON_INTERPRET", "1")
    return "cpu"


def _device_name(device: str) -> str:
    if device == "cpu":
        return "none"
    import torch

    return str(torch.cuda.get_device_name())


def main() -> None:
    """Print the records, and after them the figures."""
    records = host_times()
    for record in [*records, *figures(records)]:
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
