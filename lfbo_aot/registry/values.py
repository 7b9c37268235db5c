"""The values of dims: whole numbers, texts, bools, and dtypes by name."""

from __future__ import annotations

import re

from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import suggestion

Value = int | str | bool
"""What a dim of one call may hold."""

INTEGER = re.compile(r"-?[0-9]+")

_DTYPE_NAMES = """
    float64 float32 float16 bfloat16 complex32 complex64 complex128 bool int8 int16 int32
    int64 uint8 uint16 uint32 uint64 float8_e4m3fn float8_e4m3fnuz float8_e5m2
    float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 int1 int2 int3 int4 int5 int6 int7
    uint1 uint2 uint3 uint4 uint5 uint6 uint7 bits8 bits16 bits1x8 bits2x4 bits4x2 qint8
    quint8 qint32 quint4x2 quint2x4
"""
TORCH_DTYPES = frozenset(_DTYPE_NAMES.split())
DTYPE_SYNONYMS = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
}


def normalize_value(value: object) -> Value:
    """`value` as a plain int, bool or str; a torch dtype becomes its name, such as `bfloat16`.

    Neither torch nor numpy is imported. Raises DeclarationError for anything else, symbolic sizes
    and floats among them.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        text = str.__str__(value)
        bare = text.removeprefix("torch.")
        return bare if bare in TORCH_DTYPES else text
    module, name = type(value).__module__, type(value).__name__
    if module == "torch" and name == "dtype":
        return str(value).removeprefix("torch.")
    if module == "numpy" and getattr(value, "shape", None) == ():
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        item = getattr(value, "item", None)
        if kind in "iub" and kind and item is not None:
            return normalize_value(item())
    if module == "torch" and name.startswith("Sym"):
        msg = f"{value} is a symbolic size, not a number"
        raise DeclarationError(msg)
    msg = (
        f"{value!r} ({type(value).__qualname__}) can't be the value of a dim; use a whole number, "
        "a text, a bool or a torch dtype"
    )
    raise DeclarationError(msg)


def check_text(value: Value) -> Value:
    """`value`, if it can stand in a key and be read back as itself; else DeclarationError."""
    if isinstance(value, str):
        wrong = ""
        if not value:
            wrong = "is empty"
        elif any(mark in value for mark in ("|", "=", "..")):
            wrong = "holds '|', '=' or '..', which separate the parts of a key"
        elif not value.isprintable() or any(c.isspace() for c in value):
            wrong = "holds white space or control characters"
        elif INTEGER.fullmatch(value) or value in ("true", "false"):
            wrong = "would be read back as a number or a bool; pass that itself"
        if wrong:
            msg = f"the text {value!r} can't be the value of a dim: it {wrong}"
            raise DeclarationError(msg)
    return value


def check_dtype(name: str, value: Value) -> None:
    """DeclarationError if dim `name` is a dtype by its name and `value` isn't a torch dtype's."""
    if name != "dtype" and not name.endswith("_dtype"):
        return
    if isinstance(value, str) and value in TORCH_DTYPES:
        return
    text = str(value)
    meant = DTYPE_SYNONYMS.get(text.lower())
    near = f"Use {meant!r}." if meant else suggestion(text, TORCH_DTYPES)
    raise DeclarationError(f"{value!r} isn't the name of a torch dtype. {near}".strip(), dim=name)
