"""The state of the process in, why a forward can't be looked at just now out."""

from __future__ import annotations

import sys

import torch


class NotObserved(Exception):
    """A forward that was passed by, with the reason."""


def hindrance() -> str:
    """Why tensors can't be read or hooked in this thread right now, empty if they can."""
    if torch._C._get_tracing_state() is not None:
        return "torch.jit is tracing it"
    if torch.compiler.is_compiling():
        return "it is being compiled or exported"
    symbolic = sys.modules.get("torch.fx._symbolic_trace")
    if symbolic is not None:
        tracing = getattr(symbolic, "is_fx_symbolic_tracing", None) or symbolic.is_fx_tracing
        if tracing():
            return "torch.fx is tracing it"
    keys = torch._C._TorchDispatchModeKey
    if torch._C._len_torch_dispatch_stack() and any(
        torch._C._get_dispatch_mode(key) is not None for key in (keys.FAKE, keys.PROXY)
    ):
        return "it runs on fake tensors"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        return "it is being captured into a CUDA graph, which must not hold our copies"
    return ""


def writes_here() -> bool:
    """Whether this process is the one of a distributed training that records: rank 0, or the only one."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank() != 0)
