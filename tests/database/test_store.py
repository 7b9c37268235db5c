from __future__ import annotations

import logging

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.database.store import Layer
from lfbo_aot.database.store import Store
from lfbo_aot.database.store import built_in_database
from lfbo_aot.database.store import default_store
from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.runtime.settings import Settings

BUCKET = "m=1..16|n=2048|dtype=bfloat16"


@pytest.fixture
def database(tmp_path, write_database, make_entry):
    held = {"a.norm": {BUCKET: make_entry()}, "a.soft": {BUCKET: make_entry()}, "b.soft": {}}
    return write_database(tmp_path / "tuned", held)


def store_of(*paths):
    return Store(tuple(Layer(path.name, Database(path)) for path in paths))


def test_what_a_database_holds(database):
    held = Database(database)
    assert held.kernels() == ("a.norm", "a.soft", "b.soft")
    assert held.archs() == ("sm90",)
    assert held.declaration("a.norm").kernel_id == "a.norm"
    assert held.declaration("c.norm") is None
    assert held.shard("a.norm", "sm90").keys == (f"NVIDIA H200|{BUCKET}",)
    assert held.shard("a.norm", "sm90") is held.shard("a.norm", "sm90")
    assert held.shard("a.norm", "sm80") is None
    assert held.shard("b.soft", "sm90") is None


def test_names_never_leave_the_folder(database, make_declaration):
    (database.parent / "outside.jsonl").write_text("")
    (database.parent / "outside.json").write_text(make_declaration("outside").dumps())
    held = Database(database)
    assert held.shard("../outside", "sm90") is None
    assert held.shard("outside", "..") is None
    assert held.declaration("../../outside") is None


def test_a_missing_folder_is_empty(tmp_path):
    held = Database(tmp_path / "none")
    assert (held.kernels(), held.archs(), held.declaration("a.b")) == ((), (), None)
    assert held.shard("a.b", "sm90") is None


def test_a_declaration_of_another_kernel(database):
    folder = database / "kernels"
    (folder / "a.norm.json").rename(folder / "a.other.json")
    with pytest.raises(DatabaseError, match=r"declares 'a.norm', not 'a.other'"):
        Database(database).declaration("a.other")


def test_names(database):
    store = store_of(database)
    assert store.find("a.norm") == store.find("norm") == "a.norm"
    with pytest.raises(AmbiguousKernelError) as caught:
        store.find("soft")
    assert caught.value.ids == ["a.soft", "b.soft"]
    with pytest.raises(UnknownNameError, match="Did you mean 'norm'"):
        store.find("nrm")
    with pytest.raises(UnknownNameError, match=r"Did you mean 'a.norm'"):
        store.find("a.nrom")
    with pytest.raises(UnknownNameError, match="The store holds no kernel"):
        Store(()).find("norm")
    assert store.find("scale", ["c.scale"]) == "c.scale"


def test_a_damaged_declaration_is_passed_over(tmp_path, database, write_database):
    other = write_database(tmp_path / "other", {"a.norm": {}})
    (other / "kernels" / "a.norm.json").write_text("{")
    found, damage = store_of(other, database).declaration("a.norm")
    assert found.kernel_id == "a.norm"
    assert [error.path for error in damage] == [other / "kernels" / "a.norm.json"]
    assert store_of(other).declaration("a.norm")[0] is None


def test_the_layers_of_a_process(isolated, tmp_path, database, caplog):
    settings = Settings(path=(database, tmp_path / "none"))
    with caplog.at_level(logging.WARNING):
        store = default_store(settings)
    assert [layer.name for layer in store.layers] == [
        str(database),
        str(tmp_path / "none"),
        "user",
        "built-in",
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"LFBO_AOT_PATH names {tmp_path / 'none'}, which is no folder; it is passed over"
    ]
    assert store.layers[2].database.path == tmp_path / "user-data" / "lfbo-aot" / "tuned"
    assert store.layers[3].database.path == built_in_database()
    assert (built_in_database() / "__init__.py").is_file()
    assert store.over(database).layers[0].name == str(database)
