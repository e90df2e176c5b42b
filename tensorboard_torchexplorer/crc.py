"""Bytes in, the masked CRC-32C out that TensorBoard's record files carry.

TensorBoard computes it byte by byte in Python, 3 to 7 MB/s while holding the interpreter's lock, which is
20 ms for 100 kB. `google-crc32c` or `crc32c` are used where they are installed, else numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78  # of Castagnoli, bits reversed
_ALL_ONES = 0xFFFFFFFF
_ROW = 64
_SMALL = 1500  # bytes, below which a plain loop is faster than numpy's fixed cost

_CHECK = (b"123456789", 0xE3069283)
"""The check value of the catalogue of parametrised CRC algorithms (reveng), CRC-32/ISCSI."""


def masked_crc32c(data: bytes) -> int:
    """CRC-32C of `data`, rotated and offset as record files want it (TensorFlow's `crc32c::Mask`)."""
    crc = _fastest()(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _ALL_ONES


@cache
def _fastest() -> Callable[[bytes], int]:
    """The first implementation that is installed, compiled, and right about the check value."""
    for module, function in (("google_crc32c", "value"), ("crc32c", "crc32c")):
        try:
            found = import_module(module)
            if getattr(found, "implementation", "c") == "python":
                continue
            candidate: Callable[[bytes], int] = getattr(found, function)
            if candidate(_CHECK[0]) == _CHECK[1]:
                return candidate
        except Exception:  # a broken installation of an optional package must not cost the run its records
            continue
    return crc32c


def crc32c(data: bytes) -> int:
    """CRC-32C of `data`, in numpy.

    The data is cut into rows of 64 bytes that are processed side by side, eight bytes at a time ("slicing
    by 8", Kounavis and Berry 2005). A register of zeros stays zero over zero bytes, so the first row can
    be filled up in front. Then neighbours are joined pairwise: the register of the left one is moved over
    as many zero bytes as the right one is long, and added."""
    if len(data) < _SMALL or sys.byteorder != "little":
        return _crc32c_loop(data)
    rows = -(-len(data) // _ROW)
    padded = np.zeros(rows * _ROW, np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= 0xFF  # same as starting with a register of ones
    registers = _side_by_side(padded.reshape(rows, _ROW))
    length = _ROW
    while len(registers) > 1:
        if len(registers) % 2:
            registers = np.concatenate([np.zeros(1, np.uint32), registers])
        registers = _moved(registers[0::2], length) ^ registers[1::2]
        length *= 2
    return int(registers[0]) ^ _ALL_ONES


def _crc32c_loop(data: bytes) -> int:
    table = _byte_list()
    crc = _ALL_ONES
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ALL_ONES


def _side_by_side(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The registers after each row, from registers of zero."""
    columns = np.ascontiguousarray(rows.T)
    tables = _slicing_tables()
    registers = np.zeros(len(rows), np.uint32)
    for at in range(0, _ROW, 8):
        mixed = registers.view(np.uint8).reshape(-1, 4)
        step = tables[7][columns[at] ^ mixed[:, 0]]
        for byte in range(1, 4):
            step ^= tables[7 - byte][columns[at + byte] ^ mixed[:, byte]]
        for byte in range(4, 8):
            step ^= tables[7 - byte][columns[at + byte]]
        registers = step
    return registers


def _moved(registers: npt.NDArray[np.uint32], length: int) -> npt.NDArray[np.uint32]:
    """The registers after `length` more zero bytes."""
    tables = _moving_tables(length)
    parts = np.ascontiguousarray(registers).view(np.uint8).reshape(-1, 4)
    moved: npt.NDArray[np.uint32] = tables[0][parts[:, 0]]
    for byte in range(1, 4):
        moved = moved ^ tables[byte][parts[:, byte]]
    return moved


@cache
def _byte_table() -> npt.NDArray[np.uint32]:
    """The register after one byte, from a register that holds just this byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


@cache
def _byte_list() -> list[int]:
    return [int(entry) for entry in _byte_table()]


@cache
def _slicing_tables() -> list[npt.NDArray[np.uint32]]:
    """Table k: the register after a byte and k zero bytes."""
    tables = [_byte_table()]
    for _ in range(7):
        tables.append(tables[0][tables[-1] & 0xFF] ^ (tables[-1] >> 8))
    return tables


@cache
def _moving_tables(length: int) -> npt.NDArray[np.uint32]:
    """uint32 [4, 256]: what each value of each byte of a register contributes after `length` zero bytes.
    `length` is 64 times a power of two, so there are few of them, each made of the one before."""
    shifts = np.arange(4, dtype=np.uint32)[:, None] * 8
    table = np.arange(256, dtype=np.uint32)[None] << shifts
    if length > _ROW:
        half = length // 2
        return _moved(_moved(table.reshape(-1), half), half).reshape(4, 256)
    for _ in range(length):
        table = _byte_table()[table & 0xFF] ^ (table >> 8)
    return table


def framed(data: bytes) -> bytes:
    """One record of a record file: length, its CRC, data, its CRC; all little endian."""
    length = len(data).to_bytes(8, "little")
    return b"".join(
        [length, masked_crc32c(length).to_bytes(4, "little"), data, masked_crc32c(data).to_bytes(4, "little")]
    )
