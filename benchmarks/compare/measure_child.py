"""Final configs timed together: in turn, in shuffled rounds, each with a cold L2.

Run as `python -m benchmarks.compare.measure_child REQUEST OUT`. REQUEST holds `device`, `rounds`,
`module` and `items`: a kernel's id, a shape, and configs by label. Helion's default config is added
as `default`. OUT gets a JSON line an item: raw samples in microseconds, and what went wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.tuning.bench import Bench
    from lfbo_aot.tuning.bench import Entrant


def measure(item: Mapping[str, Any], device: str, clock: Any, rounds: int) -> dict[str, Any]:
    """The samples of one item's configs, by label. A wrong result is noted, and timed all the same."""
    from lfbo_aot.adapters import helion as seam
    from lfbo_aot.registry import catalog
    from lfbo_aot.tuning.bench import Bench
    from lfbo_aot.tuning.bench import race

    spec = catalog.find(item["kernel"])
    bench = Bench(spec, item["shape"], device, clock)
    bound = seam.bind(spec.kernel, bench.args)
    default = seam.default_config(bound)
    bench.set_reference(lambda: seam.generate(bound, default)[0])
    configs = {**item["configs"], "default": default}
    wrong: dict[str, str] = {}
    entrants = {n: _entrant(bench, bound, config, n, wrong) for n, config in configs.items()}
    found = race(bench, list(entrants.values()), rounds)
    named = dict(zip(entrants, zip(found["samples"], found["errors"], strict=True), strict=True))
    errors = {name: error for name, (_, error) in named.items() if error}
    return {
        "kernel": item["kernel"],
        "shape": item["shape"],
        "samples_us": {
            name: [round(s, 3) for s in samples]
            for name, (samples, _) in named.items()
            if name not in errors
        },
        "errors": errors,
        "wrong": wrong,
        "default": default,
        "policy": clock.policy,
    }


def _entrant(bench: Bench, bound: Any, config: Any, name: str, wrong: dict[str, str]) -> Entrant:
    from lfbo_aot.adapters import helion as seam
    from lfbo_aot.tuning.bench import Entrant

    try:
        function = seam.generate(bound, config)[0]
        reason, _ = bench.check(function)
        bench.time(function, 5)
    except Exception as e:  # noqa: BLE001 - one that fails leaves the others in the race
        return Entrant(None, error=f"{type(e).__name__}: {e}"[:300])
    if reason:
        wrong[name] = reason
    return Entrant(function)


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    on_gpu = request["device"] == "gpu"
    if not on_gpu:
        from lfbo_aot.adapters import interpreter

        interpreter.prepare()

    from benchmarks.compare.helion_child import device_name
    from lfbo_aot.adapters import helion as seam
    from lfbo_aot.registry.discovery import load_kernels

    load_kernels(request["modules"])
    head = {"versions": seam.versions(), "device": device_name(request["device"])}
    device = "cuda:0" if on_gpu else "cpu"
    clock = _clock(device)
    with Path(sys.argv[2]).open("w") as file:
        file.write(json.dumps(head) + "\n")
        for item in request["items"]:
            try:
                row = measure(item, device, clock, request["rounds"])
            except Exception as e:  # noqa: BLE001 - the other items are measured all the same
                row = {"kernel": item["kernel"], "shape": item["shape"], "samples_us": {}}
                row["errors"] = {"": f"{type(e).__name__}: {e}"[:300]}
            file.write(json.dumps(row) + "\n")
            file.flush()


def _clock(device: str) -> Any:
    if device == "cpu":
        from lfbo_aot.tuning.workers.interpreter import WallClock

        return WallClock()
    from lfbo_aot.tuning.workers.gpu import EventClock

    return EventClock(device)


if __name__ == "__main__":
    main()
