"""A class in, its living instances out."""

from __future__ import annotations

import gc
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def instances_of(kind: type[Kind]) -> list[Kind]:
    """All objects of a class and its subclasses that are written in Python, in no order.

    Found by their references to their class. `gc.get_objects` would hand out everything, also the tuples that
    other threads are in the middle of making, and whoever makes one then gets a `SystemError`.
    """
    kinds: list[type[Any]] = [kind]
    for known in kinds:  # grows while it is read
        kinds += [below for below in type.__subclasses__(known) if below not in kinds]
    return [found for found in gc.get_referrers(*kinds) if issubclass(type(found), kind)]
