"""The compared kernels, declared for exactly the shape of their case.

The functions are those of `lfbo_aot.kernels`. Declared anew, because a bucket there may hold more
shapes than the one that Helion's tuner is given, and is tuned at its upper end.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # the benchmarks are no installed package
    sys.path.append(str(ROOT))

import lfbo_aot  # noqa: E402
from benchmarks.compare.cases import CASES  # noqa: E402
from benchmarks.compare.cases import PACKAGE  # noqa: E402
from benchmarks.compare.cases import Case  # noqa: E402
from lfbo_aot import Exact  # noqa: E402

# Written here and with the parameters of the kernels: a worker imports the module of a kernel's
# shape function, and lfbo-aot reads from the function on which arguments a config depends.
_SHAPES: dict[str, Any] = {
    "softmax": lambda x: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
    "layer_norm": lambda x, weight, bias, eps: {  # noqa: ARG005
        "m": x.size(0),
        "n": x.size(1),
        "dtype": x.dtype,
    },
    "rms_norm": lambda x, weight, eps: {  # noqa: ARG005
        "m": x.size(0),
        "n": x.size(1),
        "dtype": x.dtype,
    },
    "silu_and_mul": lambda x: {"m": x.size(0), "n": x.size(1) // 2, "dtype": x.dtype},
    "matmul": lambda x, y: {"m": x.size(0), "n": y.size(1), "k": x.size(1), "dtype": x.dtype},
}


def _declare(case: Case) -> Any:
    module = importlib.import_module(f"lfbo_aot.kernels.{case.name}")
    known = getattr(module, case.name)
    spec = known.lfbo_aot_spec
    return lfbo_aot.kernel(
        dims={name: Exact(value) for name, value in case.shape.items()},
        shape=_SHAPES[case.name],
        inputs=spec.inputs,
        reference=spec.reference,
        tolerance=spec.tolerance,
        small=[dict(case.small)],
        package=PACKAGE,
    )(known.fn)


softmax = _declare(CASES["softmax"])
layer_norm = _declare(CASES["layer_norm"])
rms_norm = _declare(CASES["rms_norm"])
silu_and_mul = _declare(CASES["silu_and_mul"])
matmul = _declare(CASES["matmul"])
