"""Each example, run for two steps: what it promises to show is in the records it writes."""

from __future__ import annotations
