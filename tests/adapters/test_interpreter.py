from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

# Each function and what it must give at 0.3, and for two arguments at (2.5, 1.5).
ONE = {
    "acos": math.acos,
    "asin": math.asin,
    "asinh": math.asinh,
    "atan": math.atan,
    "cbrt": lambda x: x ** (1 / 3),
    "ceil": math.ceil,
    "cos": math.cos,
    "cosh": math.cosh,
    "erf": math.erf,
    "exp": math.exp,
    "exp2": lambda x: 2**x,
    "expm1": math.expm1,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "log1p": math.log1p,
    "log2": math.log2,
    "nearbyint": round,
    "rint": round,
    "rsqrt": lambda x: x**-0.5,
    "sin": math.sin,
    "sinh": math.sinh,
    "sqrt": math.sqrt,
    "tan": math.tan,
    "tanh": math.tanh,
    "trunc": math.trunc,
}
TWO = {
    "atan2": math.atan2,
    "copysign": math.copysign,
    "fmod": math.fmod,
    "hypot": math.hypot,
    "pow": math.pow,
}
KERNEL = """
@triton.jit
def k_{name}(x, y, out):
    at = tl.arange(0, 4)
    tl.store(out + at, libdevice.{name}({arguments}))
"""
HEAD = """
import json
from lfbo_aot.adapters import interpreter
interpreter.prepare()
import torch, triton
import triton.language as tl
from triton.language.extra import libdevice
x, y, out = torch.full((4,), X), torch.full((4,), 1.5), torch.zeros(4)
found = {}
"""


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What the functions give in a process of their own, by name."""
    text = [HEAD]
    two = "tl.load(x + at), tl.load(y + at)"
    for names, arguments, x in ((ONE, "tl.load(x + at)", 0.3), (TWO, two, 2.5)):
        text.append(f"X = {x}; x = torch.full((4,), X)")
        for name in names:
            text.append(KERNEL.format(name=name, arguments=arguments))
            text.append(f"k_{name}[(1,)](x, y, out); found[{name!r}] = out.tolist()")
    for name in ("isnan", "isinf"):
        text.append("x = torch.tensor([0.0, float('nan'), float('inf'), -1.0])")
        text.append(KERNEL.format(name=name, arguments="tl.load(x + at)"))
        text.append(f"k_{name}[(1,)](x, y, out); found[{name!r}] = out.tolist()")
    text.append("print(json.dumps(found))")
    script = tmp_path_factory.mktemp("libdevice") / "script.py"
    script.write_text("\n".join(text).replace("torch.full((4,), X),", "torch.zeros(4),", 1))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(computed, name):
    assert computed[name] == pytest.approx([ONE[name](0.3)] * 4, rel=1e-5)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(computed, name):
    assert computed[name] == pytest.approx([TWO[name](2.5, 1.5)] * 4, rel=1e-5)


def test_predicates(computed):
    assert computed["isnan"] == [0.0, 1.0, 0.0, 0.0]
    assert computed["isinf"] == [0.0, 0.0, 1.0, 0.0]


def test_too_late():
    script = (
        "import triton\nfrom lfbo_aot.adapters import interpreter\n"
        "try:\n    interpreter.prepare()\nexcept RuntimeError as e:\n    print(e)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout == "triton is already imported: the interpreter needs a process of its own\n"
