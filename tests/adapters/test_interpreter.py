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
y, out = torch.full((4,), 1.5), torch.zeros(4)
found = {}
"""


# Loop bounds known at run time only, one value read from memory and one computed.
BOUNDS = """
@triton.jit
def k(bounds, out):
    row = tl.program_id(0)
    begin, end = tl.load(bounds + row), tl.load(bounds + row + 1)
    total = 0
    for at in tl.range(begin, end):
        total += at
    for _ in range(end - begin, 5):
        total += 100
    tl.store(out + row, total)
bounds, out = torch.tensor([0, 3, 5]), torch.zeros(2, dtype=torch.int64)
k[(2,)](bounds, out)
found = out.tolist()
"""
# Rounded from three wider floats, and by torch where that gives what a GPU would.
ROUNDED = """
@triton.jit
def k(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))
for kind, largest in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)):
    for wide in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.tensor([0.0, -1.0, 127.0, -127.0, 1.0625, 1.1875, 1.125, 1.375, 2.0**-9, 3e-3,
                          -0.007, 0.9999, 447.0, 6e4, float("inf"), -float("inf")]).to(wide)
        out = torch.zeros(16, dtype=kind)
        k[(1,)](x, out, 16)
        wanted = x.float().clamp(-largest, largest).to(kind).float().tolist()
        name = f"{kind} from {wide}".replace("torch.", "")
        found[name] = [out.float().tolist(), wanted]
x, out = torch.full((16,), float("nan")), torch.zeros(16, dtype=torch.float8_e4m3fn)
k[(1,)](x, out, 16)
found["nan"] = out.float().isnan().tolist()
"""


def run(folder, text):
    """What a script gives as `found`, in a process of its own."""
    script = folder / "script.py"
    script.write_text(HEAD + text + "\nprint(json.dumps(found))")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What the functions give in a process of their own, by name."""
    text = []
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
    return run(tmp_path_factory.mktemp("libdevice"), "\n".join(text))


@pytest.fixture(scope="module")
def rounded(tmp_path_factory):
    """(What came out, what torch gives) of each pair of dtypes."""
    return run(tmp_path_factory.mktemp("rounded"), ROUNDED)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(computed, name):
    assert computed[name] == pytest.approx([ONE[name](0.3)] * 4, rel=1e-5)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(computed, name):
    assert computed[name] == pytest.approx([TWO[name](2.5, 1.5)] * 4, rel=1e-5)


def test_predicates(computed):
    assert computed["isnan"] == [0.0, 1.0, 0.0, 0.0]
    assert computed["isinf"] == [0.0, 0.0, 1.0, 0.0]


def test_loops_with_bounds_known_at_run_time(tmp_path):
    assert run(tmp_path, BOUNDS) == [0 + 1 + 2 + 2 * 100, 3 + 4 + 3 * 100]


@pytest.mark.parametrize("wide", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_are_rounded_to_the_nearest(rounded, kind, wide):
    got, wanted = rounded[f"{kind} from {wide}"]
    assert got == wanted
    # The carry of a rounding up, ties to even, and no infinity.
    assert got[2:4] == [128.0, -128.0]
    assert got[4:6] == [1.0, 1.25]
    assert max(got) == -min(got) == (448.0 if kind == "float8_e4m3fn" else 57344.0)


def test_no_number_stays_none(rounded):
    assert rounded["nan"] == [True] * 16


def test_preparing_twice_mends_once(tmp_path):
    text = """
from triton.runtime import interpreter as mended
once = mended._convert_float, mended._patch_lang_tensor
interpreter.prepare()
found = once == (mended._convert_float, mended._patch_lang_tensor)
"""
    assert run(tmp_path, text) is True


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
