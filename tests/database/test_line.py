from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.database.line import encode_line
from lfbo_aot.database.line import join_key
from lfbo_aot.database.line import parse_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.line import suspects
from lfbo_aot.registry.buckets import Bucket

KEY = "NVIDIA H200|m=1025..4096|n=5120|dtype=bfloat16"
NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="|", exclude_categories=("C", "Z")), min_size=1
)


def test_the_format(make_entry):
    line = encode_line(KEY, make_entry())
    key, checksum, entry = json.loads(line)
    assert line.startswith(f'["{KEY}", "{checksum}", {{"schema": 1, ')
    assert key == KEY
    text = line[line.index("{") : -1]
    assert checksum == f"{zlib.crc32(text.encode()):08x}"
    assert entry == {"schema": 1, "key": KEY, **make_entry().to_json()}
    assert "\n" not in line


@given(name=NAMES, lo=st.integers(0, 99), more=st.integers(0, 99), flag=st.booleans())
def test_round_trip(make_entry, name, lo, more, flag):
    bucket = Bucket.parse(f"m={lo}..{lo + more}|causal={'true' if flag else 'false'}")
    key = join_key(name, bucket)
    assert split_key(key) == (name, bucket)
    line = parse_line(encode_line(key, make_entry()).encode(), 7)
    assert (line.key, line.number, line.device_name) == (key, 7, name)
    assert line.entry() == make_entry()


def test_a_line_without_the_repeated_key_is_read(make_entry):
    text = json.dumps(make_entry().to_json())
    line = parse_line(f'["{KEY}", "{zlib.crc32(text.encode()):08x}", {text}]'.encode(), 1)
    assert line.entry() == make_entry()


def test_text_beyond_ascii_is_kept_readable(make_entry):
    line = encode_line(KEY, make_entry(note="größer als 1 µs"))
    assert "größer als 1 µs" in line
    assert parse_line(line.encode(), 1).entry().note == "größer als 1 µs"


@pytest.mark.parametrize("name", ["", "a|b", "a\nb", "a\x00"])
def test_device_names_that_cannot_stand_in_a_key(name):
    with pytest.raises(ValueError, match="can't stand in a key"):
        join_key(name, Bucket.parse("m=1"))


@pytest.mark.parametrize("key", ["H200", "H200|", "H200|m", "H200|m=01", "H200|m=4..2", "|m=1"])
def test_keys_that_are_none(make_entry, key):
    with pytest.raises(ValueError):
        encode_line(key, make_entry())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw[:-1], "cut or malformed"),
        (lambda raw: raw[: len(raw) // 2], "cut or malformed"),
        (lambda raw: raw + b"\r", "CRLF"),
        (lambda raw: b"", "cut or malformed"),
        (lambda raw: raw + b"," + raw, "cut or malformed"),
        (lambda raw: raw.replace(b"n=5120", b"n=5121", 1), "belongs to the key"),
        (lambda raw: raw.replace(b"25.6", b"25.7"), "checksum"),
        (lambda raw: raw.replace(b'"schema": 1', b'"schema": 7'), "checksum"),
    ],
)
def test_damage_is_found(make_entry, change, says):
    raw = change(encode_line(KEY, make_entry()).encode())
    with pytest.raises(ValueError, match=says):
        parse_line(raw, 1).entry()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema": 1, "config": NaN}', "NaN isn't finite"),
        ('{"schema": 1, "config": 1, "config": 2}', "'config' stands there twice"),
        ('{"schema": 1, "key": "H200|m=9"}', "belongs to the key"),
        ('{"a": ' + "[" * 100000 + "}", "nested too deeply"),
    ],
)
def test_well_summed_nonsense_is_found(text, says):
    raw = f'["H200|m=1", "{zlib.crc32(text.encode()):08x}", {text}]'.encode()
    with pytest.raises(ValueError, match=says):
        parse_line(raw, 1).entry()


def test_what_a_damaged_line_was_about(make_entry):
    raw = encode_line(KEY, make_entry()).encode()
    box, device = ("NVIDIA H200", Bucket.parse(KEY.partition("|")[2])), ("NVIDIA H200", None)
    # The second box that could be read in a cut key, such as m=1025..40, isn't one.
    assert suspects(raw[:60]) == (box,)
    assert suspects(raw[:200]) == (box,)
    assert suspects(raw[:100]) == (box,)
    assert suspects(b"\xef\xbb\xbf" + raw[:60]) == (box,)
    assert suspects(raw[:45]) == suspects(raw[:30]) == suspects(raw[:16]) == (device,)
    assert suspects(raw[40:]) == (box, device)
    assert suspects(raw[:8]) == suspects(b"\xff\xfe nonsense") == ((None, None),)
    assert suspects(b" \r") == ()


def test_dims_of_other_letters_in_a_damaged_line(make_entry):
    raw = encode_line("H200|größe=1..16", make_entry()).encode()
    assert suspects(raw[:40]) == (("H200", Bucket.parse("größe=1..16")),)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (b"", b"\r", "has CRLF line ends"),
        (b"\xef\xbb\xbf", b"", "starts with a byte order mark"),
        (b"", b"!", "cut or malformed"),
    ],
)
def test_what_an_editor_did_is_said(make_entry, before, after, says):
    with pytest.raises(ValueError, match=says):
        parse_line(before + encode_line(KEY, make_entry()).encode() + after, 1)
