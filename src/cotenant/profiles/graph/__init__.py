"""The graph of a model, read without running it: what it computes, moves and holds."""
