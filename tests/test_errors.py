"""Errors say what, where and what to do."""

from __future__ import annotations

import pytest

from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import DiscoveryError
from lfbo_aot.errors import SettingError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.errors import nearest


def test_nearest_gives_the_closest_words_first() -> None:
    known = ["layer_norm", "rms_norm", "softmax"]
    assert nearest("layer_nrm", known)[0] == "layer_norm"
    assert nearest("norm", known) == ["rms_norm", "layer_norm"]
    assert nearest("", known) == []


def test_an_unknown_name_lists_all_known_ones_where_none_is_near() -> None:
    error = UnknownNameError("kernel", "xyzzy", ["softmax", "matmul"])
    assert str(error) == "unknown kernel 'xyzzy'. Known: matmul, softmax."


def test_a_missing_library_of_the_extra_names_the_extra() -> None:
    missing = ModuleNotFoundError("No module named 'helion'", name="helion")
    assert 'pip install "lfbo-aot[tune]"' in str(DiscoveryError("mykern.ops", missing))


def test_another_missing_module_does_not() -> None:
    missing = ModuleNotFoundError("No module named 'mykern'", name="mykern")
    text = str(DiscoveryError("mykern.ops", missing))
    assert "'mykern.ops'" in text
    assert "pip install" not in text


def test_a_setting_names_what_is_allowed_and_the_nearest() -> None:
    error = SettingError("LFBO_AOT_POLICY", "compatable", ["exact", "compatible", "any"])
    assert str(error) == (
        "LFBO_AOT_POLICY='compatable' is not valid. Allowed: exact, compatible, any. "
        "Did you mean 'compatible'?"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "bad"),
        ({"kernel": "a.b"}, "kernel 'a.b': bad"),
        ({"kernel": "a.b", "dim": "m", "place": "k.py:3"}, "kernel 'a.b', dim 'm', k.py:3: bad"),
    ],
    ids=["bare", "kernel", "kernel, dim and place"],
)
def test_a_declaration_error_says_where(fields: dict[str, str], text: str) -> None:
    assert str(DeclarationError("bad", **fields)) == text
