"""The options that all examples have."""

from __future__ import annotations

import argparse


def command_line(description: str, name: str, steps: int, log_freq: int = 10) -> argparse.ArgumentParser:
    """A parser that knows --steps, --logdir and --log-freq. `steps` and `log_freq` are their defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, kind, default, meaning in (
        ("--steps", _count, steps, "optimizer steps"),
        ("--logdir", str, f"runs/{name}", "where the event file goes"),
        ("--log-freq", _count, log_freq, "watch each how-many-th step"),
    ):
        parser.add_argument(option, type=kind, default=default, help=f"{meaning} (default {default})")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return int(text)
