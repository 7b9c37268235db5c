from __future__ import annotations

import pytest

from lfbo_aot.registry.plain import Declared
from lfbo_aot.registry.plain import NotPlainError
from lfbo_aot.registry.plain import plain_kernels
from lfbo_aot.registry.reach import reach

PLAIN = """
from __future__ import annotations

import os
from typing import TYPE_CHECKING

import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range

if TYPE_CHECKING:
    import somewhere_else

SIZES = [2**i for i in range(4, 8)]
SIZES.append(300)


def _inputs(shape, device):
    return (torch.randn(shape["m"], device=device, seed=os.environ.get("SEED")),)


@lfbo_aot.kernel(
    dims={"m": Range(1, 64), "n": Exact(*sorted(SIZES)), "dtype": Exact(torch.bfloat16)},
    shape=lambda x: {"m": x.size(0), "n": torch.cuda.device_count(), "dtype": x.dtype},
    inputs=_inputs,
    reference=torch.softmax,
    small=[{"m": 4, "n": 16, "dtype": "float32"}],
)
def twice(x: torch.Tensor) -> somewhere_else.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + x[tile]
    return out
"""
KERNEL = '@lfbo_aot.kernel(dims={"m": Range(1, 64)}, shape=lambda x: {"m": x.size(0)})\n'
HEAD = "import torch\nimport lfbo_aot\nfrom lfbo_aot import Exact, Range\n"


@pytest.fixture
def declared(tmp_path):
    """A function that says which kernels `pkg.ops`, of this text, declares; `more` are modules."""

    def of(text, **more):
        for name, content in {"__init__": "", "ops": text, **more}.items():
            path = tmp_path / "pkg" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        return plain_kernels(reach(tmp_path / "pkg" / "ops.py", "pkg.ops"), "pkg.ops")

    return of


def test_kernels_at_the_top_of_a_module_are_known(declared):
    assert declared(PLAIN) == {"pkg.twice": Declared("pkg.ops", "twice")}


def test_nothing_is_run(declared):
    text = HEAD + KERNEL + "def k(x): ...\nif False:\n    raise ValueError('run')\nassert 1 == 1\n"
    assert set(declared(text)) == {"pkg.k"}


@pytest.mark.parametrize(
    "text",
    [
        "from lfbo_aot import kernel\n" + KERNEL.replace("lfbo_aot.kernel", "kernel"),
        "from lfbo_aot import kernel as tuned\n" + KERNEL.replace("lfbo_aot.kernel", "tuned"),
        "import lfbo_aot as aot\n" + KERNEL.replace("lfbo_aot.kernel", "aot.kernel"),
    ],
)
def test_the_decorator_is_known_by_what_its_name_stands_for(declared, text):
    assert set(declared(f"from lfbo_aot import Range\n{text}def k(x): ...\n")) == {"pkg.k"}


def test_package_is_read_where_it_is_written_out(declared):
    text = HEAD + KERNEL.replace("dims=", 'package="other", dims=') + "def k(x): ...\n"
    assert set(declared(text)) == {"other.k"}


def test_kernels_of_imported_modules_of_the_package_are_known_with_their_module(declared):
    found = declared("from .impl import k\n", impl=HEAD + KERNEL + "def k(x): ...\n")
    assert found == {"pkg.k": Declared("pkg.impl", "k")}


@pytest.mark.parametrize(
    "text",
    [
        "M = [1]\ndef grow(n):\n    return [n, *M]\nDIMS = grow(2)\n",
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass S:\n    n: int = 1\nDIMS = S(2)\n",
        "import math\nDIMS = math.prod([1, 2])\n",
        "from itertools import product\nDIMS = list(product([1], [2]))\n",
        "from .sizes import *\nDIMS = (N, M)\n",
        "from . import sizes\nDIMS = sizes.N\n",
        "from .sizes import grow\nDIMS = grow(1)\n",
    ],
)
def test_what_means_the_same_everywhere_is_plain(declared, text):
    sizes = "N, M = 1, 2\ndef grow(n):\n    return n + N\n"
    assert set(declared(HEAD + text + KERNEL + "def k(x): ...\n", sizes=sizes)) == {"pkg.k"}


@pytest.mark.parametrize(
    "text",
    [
        "import os\nM = os.environ.get('M', 4)\n",
        "from os import environ\nM = len(environ)\n",
        "import os as itertools\nM = itertools.cpu_count()\n",
        "M = open('sizes.txt').read()\n",
        "M = __import__('os')\n",
        "exec('M = 1')\n",
        "import json\nM = json.loads('1')\n",
        "from pathlib import Path\nM = Path('x').read_text()\n",
        "M = __file__\n",
        "M = torch.cuda.is_available()\n",
        "M = torch.__version__\n",
        "M = hasattr(torch, 'float8_e4m3fn')\n",
        "import sys\nif sys.version_info > (3, 11):\n    M = 1\n",
        "def grow():\n    return torch.cuda.device_count()\nM = grow()\n",
        "class S:\n    def __init__(self):\n        self.n = torch.cuda.device_count()\nM = S()\n",
        "class S:\n    @property\n    def n(self):\n        return torch.cuda.device_count()\nM = S().n\n",
        "import enum\nclass E(enum.Enum):\n    def _generate_next_value_(*a):\n        return torch.rand(1)\n    A = enum.auto()\n",
        "M = (lambda: torch.cuda.device_count())()\n",
        "from .sizes import torch as t\nM = t.cuda.is_available()\n",
        "from .sizes import *\nM = torch.cuda.is_available()\n",
        "from . import sizes\nM = sizes.torch.cuda.is_available()\n",
        "from .sizes import count\nM = count()\n",
        "from . import sizes\nsizes.N = 2\n",
        "try:\n    import triton\n    M = 1\nexcept ImportError:\n    M = 2\n",
        "import other\n",
        "from other import SIZES\n",
        "from torch import *\n",
        "import operator\nM = operator.attrgetter('cuda')(1)\n",
        "M = ().__class__\n",
        "def f():\n    global M\n    M = 1\nf()\n",
        "import importlib\nimportlib.import_module('pkg.more')\n",
        "def f():\n    import other\nf()\n",
        "def f(x): ...\nlfbo_aot.register(f, dims={})\n",
        "for f in (abs, min):\n    lfbo_aot.kernel(dims={})(f)\n",
        "from lfbo_aot.kernels import softmax\n",
        "import lfbo_aot.kernels.softmax\n",
        "from lfbo_aot.kernels.softmax import softmax\n",
        "if True:\n    " + KERNEL + "    def n(x): ...\n",
        "def make():\n    " + KERNEL + "    def n(x): ...\nmake()\n",
        "class C:\n    " + KERNEL + "    def n(x): ...\n",
        "D = lfbo_aot.kernel(dims={})\n@D\ndef n(x): ...\n",
        "D = {'dims': {}}\n@lfbo_aot.kernel(**D)\ndef n(x): ...\n",
        "@lfbo_aot.kernel(dims={}, package=str(1))\ndef n(x): ...\n",
        "@lfbo_aot.kernel(dims={'m': torch.cuda.device_count()})\ndef n(x): ...\n",
        "@lfbo_aot.kernel\ndef n(x): ...\n",
        KERNEL + "def k(x, y): ...\n",
        "if False:\n    from . import declares\n",
        "def late():\n    from . import declares\n",
        "def lfbo_aot(): ...\n",
        "class lfbo_aot:\n    kernel = staticmethod(lambda **k: lambda f: f)\n",
    ],
)  # fmt: skip
def test_what_may_differ_by_machine_or_moment_is_not_plain(declared, text):
    sizes = "import torch\nN = 1\ndef count():\n    return torch.cuda.device_count()\n"
    whole = HEAD + KERNEL + "def k(x): ...\n" + text
    assert set(declared(whole.replace(text, ""), sizes=sizes, more="")) == {"pkg.k"}
    with pytest.raises(NotPlainError):
        declared(whole, sizes=sizes, more="", declares=HEAD + KERNEL + "def other(x): ...\n")


ENVIRON = "import os\ndef sizes(f=None):\n    return [int(os.environ.get('X', '4'))]\n"


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("from .util import sizes as _s\nM = _s()\n", {}),
        ("from pkg.util import sizes as _s\nM = _s()\n", {}),
        ("import pkg.util as u\nM = u.sizes()\n", {}),
        ("from .between import d\nM = d()\n", {"between": "from .util import sizes as d\n"}),
        ("from .between import *\nM = d()\n", {"between": "from .util import sizes as d\n"}),
        ("from . import d\nM = d()\n", {"__init__": "from .util import sizes as d\n"}),
        ("from . import d as e\nM = e()\n", {"__init__": "from .util import sizes as d\n"}),
        ("from .util import sizes as s\n@s\ndef g(): ...\n", {}),
        ("from .util import sizes as s\nclass C:\n    @s\n    def g(self): ...\n", {}),
        ("from .util import sizes as s\nM = list(map(s, [1]))\n", {}),
        ("def f():\n    from .util import sizes as s\n    return s()\nM = f()\n", {}),
    ],
)
def test_what_runs_under_another_name_runs(declared, text, more):
    whole = HEAD + KERNEL + "def k(x): ...\n" + text
    harmless = "def sizes(f=None):\n    return [4]\n"
    assert set(declared(whole, **{"__init__": "", **more, "util": harmless})) == {"pkg.k"}
    with pytest.raises(NotPlainError, match=r"os\.environ"):
        declared(whole, **more, util=ENVIRON)


def test_a_function_that_nothing_calls_may_do_anything(declared):
    text = "from .util import sizes as _s\ndef later():\n    return 1\n"
    assert set(declared(HEAD + text + KERNEL + "def k(x): ...\n", util=ENVIRON)) == {"pkg.k"}


@pytest.mark.parametrize(
    "text",
    [
        # Modules that are attributes of others, and more than is listed of one.
        "import dataclasses\nM = dataclasses.inspect.os.environ\n",
        "import enum\nM = enum.sys.platform\n",
        "import collections\nM = collections._sys.platform\n",
        "import functools as f\nM = f\n",
        "from typing import get_type_hints\nM = get_type_hints(k)\n",
        "import math\nM = math.log2(8)\n",
        # Text of values.
        "M = repr(k)\n",
        "M = str(k)\n",
        "M = f'{k}'\n",
        "M = '%s' % k\n",
        "M = '{0.x}'.format(k)\n",
        "M = '{x}'.format_map({'x': k})\n",
        "F = '{}'.format\nM = F(k)\n",
        "class C:\n    @property\n    def size(self):\n        return torch.cuda.device_count()\nM = C()\n",
        # What is called by what it is given to.
        "class C:\n    def keys(self):\n        return torch.cuda.device_count()\nM = {**C()}\n",
        "C = [(1, 2)]\nM = dict(C)\n",
        "def call(f):\n    return f()\n@call\ndef M():\n    return torch.cuda.device_count()\n",
        "class C:\n    def __getitem__(self, k):\n        return 1\n",
        "def __getattr__(name):\n    return 1\n",
        # Orders of sets.
        "M = list({'a', 'b'})\n",
        "M = [n for n in {'a', 'b'}]\n",
        "for n in {'a', 'b'}:\n    M = n\n",
        "M = {4, 8}\n",
        "M = [*{4, 8}]\n",
        "M = {n for n in 'ab'}.pop()\n",
        "M = set('ab').pop()\n",
        "M = tuple(frozenset('ab'))\n",
        "S = set\nM = S('ab')\n",
        "M = sorted({'a', 'b'}, key=len)\n",
        "M = max({'a', 'b'}, key=len)\n",
        "D = {'a': 1}\nM = D.keys() | D.keys()\n",
        "D = {'a': 1}\nM = D.items()\n",
        "def sorted(x):\n    return tuple(x)\nM = sorted({'a', 'b'})\n",
        "def f(sorted):\n    return sorted({'a', 'b'})\nM = f(tuple)\n",
        # A builtin until it is bound.
        "M = open('sizes.txt')\nopen = 1\n",
        "if False:\n    hash = 1\nM = hash('a')\n",
        "class C:\n    x = open('sizes.txt')\n    open = 1\n",
        "if False:\n    __file__ = 1\nM = __file__\n",
        # Other ways into the interpreter.
        "M = (n for n in [1]).gi_frame\n",
        "del k\n",
        "M = [1]\nassert M.pop()\n",
        "T = torch.Tensor\nM = T([1]).device\n",
    ],
)  # fmt: skip
def test_what_looks_plain_and_may_differ_is_not_plain(declared, text):
    with pytest.raises(NotPlainError):
        declared(HEAD + KERNEL + "def k(x): ...\n" + text)


@pytest.mark.parametrize(
    "text",
    [
        "M = sorted({n for n in (1, 2)}, reverse=True)\n",
        "M = len(set([1, 2])), max({1, 2}), 1 in {1, 2}\n",
        "D = {'a': 1}\nM = [k for k, v in D.items()] + sorted(D.keys())\n",
        "M = dict(a=1), dict(zip('ab', (1, 2))), dict([('a', 1)])\n",
        "import dataclasses\nM = dataclasses.field\n",
        "from itertools import chain\nM = list(chain.from_iterable([[1], [2]]))\n",
        "def f(x: torch.Tensor) -> set[int]:\n    'A text of 5 %.'\nM = f(1)\n",
        "assert 1 in (1, 2)\n",
    ],
)
def test_forms_that_tell_no_order_and_no_address_are_plain(declared, text):
    assert set(declared(HEAD + KERNEL + "def k(x): ...\n" + text)) == {"pkg.k"}


@pytest.mark.parametrize(
    ("keyword", "plain"),
    [
        ("inputs=mk", True),
        ("inputs=lambda s, d: mk()", True),
        ("reference=torch.softmax", True),
        ("inputs=mk()", False),
        ("reference=[mk()][0]", False),
        ("inputs=lambda s, d, n=mk(): ()", False),
        ("inputs=lambda s, d, *, n=mk(): ()", False),
        ("inputs=mk().run", False),
    ],
)
def test_functions_that_a_declaration_holds_are_named_or_written_out(declared, keyword, plain):
    make = "def mk():\n    return torch.cuda.device_count()\n"
    text = HEAD + make + KERNEL.replace("dims=", f"{keyword}, dims=") + "def k(x): ...\n"
    if plain:
        assert set(declared(text)) == {"pkg.k"}
    else:
        with pytest.raises(NotPlainError, match="device_count"):
            declared(text)


@pytest.mark.parametrize("future", [True, False])
def test_annotations_that_are_evaluated_count(declared, future):
    text = "def reg():\n    return torch.cuda.device_count()\n" + KERNEL + "def k(x: reg()): ...\n"
    if future:
        assert set(declared("from __future__ import annotations\n" + HEAD + text)) == {"pkg.k"}
    else:
        with pytest.raises(NotPlainError, match="device_count"):
            declared(HEAD + text)


def test_a_refusal_says_where(declared):
    with pytest.raises(NotPlainError, match=r"pkg\.ops, line 3: it imports other"):
        declared("\n\nimport other\n")
