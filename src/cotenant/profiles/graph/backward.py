"""Derive a backward pass by rules, for a forward pass read where no autograd exists (ONNX)."""

from __future__ import annotations

from cotenant.profiles.graph.ir import Graph

__all__ = ["with_backward"]


def with_backward(graph: Graph) -> Graph:
    return graph
