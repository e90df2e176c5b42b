from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub import pywrap_tensorflow as theirs

from tensorboard_torchexplorer import crc


@pytest.fixture
def fresh(monkeypatch):
    """No optional package is installed, unless the test makes one."""
    for name in ("google_crc32c", "crc32c"):
        monkeypatch.setitem(sys.modules, name, None)
    crc._fastest.cache_clear()
    yield monkeypatch
    crc._fastest.cache_clear()


def test_the_check_value_of_the_standard():
    assert crc.crc32c(b"123456789") == 0xE3069283


@given(st.binary(max_size=64), st.integers(0, 6000))
@example(b"", 0)
@example(b"x", 1499)
@example(b"x", 1500)
@example(b"\0", 1537)
def test_it_is_tensorboards_own(piece, length):
    data = (piece * (length // max(1, len(piece)) + 1))[:length] if piece else bytes(length)

    assert crc.crc32c(data) == theirs.crc32c(data)
    assert crc.masked_crc32c(data) == theirs.masked_crc32c(data)


@pytest.mark.parametrize("length", [65_536, 65_537, 99_999, 300_000])
def test_long_data(length):
    data = bytes(index * index % 251 for index in range(length))

    assert crc.crc32c(data) == theirs.crc32c(data)


def test_on_a_big_endian_machine_the_loop_is_used(monkeypatch):
    monkeypatch.setattr(sys, "byteorder", "big")
    monkeypatch.setattr(crc, "_side_by_side", None)

    assert crc.crc32c(bytes(3000)) == theirs.crc32c(bytes(3000))


def module(name: str, function: str, value, **attributes) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update({function: value, **attributes})
    return made


def test_without_optional_packages_numpy_is_used(fresh):
    assert crc._fastest() is crc.crc32c


def test_an_installed_package_is_used(fresh):
    fresh.setitem(sys.modules, "crc32c", module("crc32c", "crc32c", lambda data: theirs.crc32c(data)))

    assert crc._fastest() is sys.modules["crc32c"].crc32c


def test_one_that_is_not_compiled_is_not_worth_it(fresh):
    slow = module("google_crc32c", "value", lambda data: theirs.crc32c(data), implementation="python")
    fresh.setitem(sys.modules, "google_crc32c", slow)

    assert crc._fastest() is crc.crc32c


def broken(data: bytes) -> int:
    raise OSError("cannot load library")


@pytest.mark.parametrize("function", [lambda data: 0, broken, None])
def test_one_that_is_broken_or_wrong_is_passed_over(fresh, function):
    fresh.setitem(sys.modules, "google_crc32c", module("google_crc32c", "value", function))

    assert crc._fastest() is crc.crc32c


def test_a_framed_record_is_what_tensorboard_writes(tmp_path):
    import io

    from tensorboard.summary.writer.record_writer import RecordWriter

    data = bytes(range(256)) * 10
    file = io.BytesIO()
    RecordWriter(file).write(data)

    assert crc.framed(data) == file.getvalue()
