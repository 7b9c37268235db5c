from __future__ import annotations

import gc
import sys

import pytest

from lfbo_aot.adapters import lean


@pytest.fixture
def fresh(monkeypatch):
    """None of the two is imported yet."""
    for name in [n for n in sys.modules if n.partition(".")[0] in {"scipy", "sklearn"}]:
        monkeypatch.delitem(sys.modules, name)


def test_inside_they_can_not_be_imported_and_outside_they_can(fresh):
    with lean.lean_imports():
        for name in ("scipy", "sklearn"):
            with pytest.raises(ImportError):
                __import__(name)
        assert not gc.isenabled()
    assert gc.isenabled()
    assert {"scipy", "sklearn"}.isdisjoint(sys.modules)


def test_what_is_imported_already_stays_so(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", lean)
    with lean.lean_imports():
        assert sys.modules["sklearn"] is lean
        assert sys.modules["scipy"] is None
    assert sys.modules["sklearn"] is lean
    assert "scipy" not in sys.modules


def test_all_is_as_before_after_a_failure(fresh):
    gc.disable()
    try:
        with pytest.raises(ImportError), lean.lean_imports():
            raise ImportError
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert "scipy" not in sys.modules
