from __future__ import annotations

import pytest

from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import UnknownNameError

pytestmark = pytest.mark.usefixtures("empty_catalog")


def test_found_by_id_and_by_bare_name(empty_catalog, spec_of):
    one, two = spec_of("a.norm"), spec_of("b.softmax", line=9)
    empty_catalog.add(two)
    empty_catalog.add(one)
    assert empty_catalog.specs() == (one, two)
    assert empty_catalog.find("a.norm") is one
    assert empty_catalog.find("softmax") is two


def test_a_bare_name_of_several_lists_them(empty_catalog, spec_of):
    empty_catalog.add(spec_of("b.norm", line=1))
    empty_catalog.add(spec_of("a.norm", line=2))
    with pytest.raises(AmbiguousKernelError, match=r"a\.norm, b\.norm"):
        empty_catalog.find("norm")
    assert empty_catalog.find("b.norm").line == 1


def test_an_unknown_name_gets_the_nearest(empty_catalog, spec_of):
    with pytest.raises(UnknownNameError, match="No kernel module"):
        empty_catalog.find("layernorm")
    empty_catalog.add(spec_of("a.layer_norm"))
    with pytest.raises(UnknownNameError, match=r"Did you mean 'a\.layer_norm'"):
        empty_catalog.find("layernorm")


def test_two_kernels_of_one_id_name_both_places(empty_catalog, spec_of):
    empty_catalog.add(spec_of(file="/one.py", line=3))
    with pytest.raises(DeclarationError) as caught:
        empty_catalog.add(spec_of(file="/two.py", line=4))
    assert "/one.py:3" in str(caught.value)
    assert "/two.py:4" in str(caught.value)
    assert empty_catalog.find("mine.scale_add").file == "/one.py"


def test_the_same_place_replaces(empty_catalog, spec_of, tmp_path):
    empty_catalog.add(spec_of())
    again = spec_of()
    empty_catalog.add(again)
    assert empty_catalog.specs() == (again,)
    (tmp_path / "ops.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "ops.py")
    empty_catalog.add(spec_of("a.f", file=str(tmp_path / "ops.py")))
    empty_catalog.add(spec_of("a.f", file=str(tmp_path / "link.py")))
    assert len(empty_catalog.specs()) == 2


def test_one_file_may_not_define_it_twice_but_may_be_edited(empty_catalog, spec_of, tmp_path):
    file = tmp_path / "ops.py"
    file.write_text("def scale_add(x): ...\n\n\ndef scale_add(x): ...\n")
    empty_catalog.add(spec_of(file=str(file), line=1))
    with pytest.raises(DeclarationError):
        empty_catalog.add(spec_of(file=str(file), line=4))
    file.write_text("# a comment was put before it\n\n\ndef scale_add(x): ...\n")
    empty_catalog.add(spec_of(file=str(file), line=4))
    assert empty_catalog.find("scale_add").line == 4


def test_discard(empty_catalog, spec_of):
    empty_catalog.add(spec_of())
    empty_catalog.discard("mine.scale_add")
    empty_catalog.discard("mine.scale_add")
    assert empty_catalog.specs() == ()
