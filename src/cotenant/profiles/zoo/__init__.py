"""Networks of the measured tables, written as small torch modules, and how each is trained.

``recipes`` knows names, batch sizes and shapes without torch; the networks themselves are in
modules that import torch.
"""
