"""How good the model of train.py is: a job that waits for another one.

cotenant submit --name train -- python train.py --save model.pt
cotenant submit --after train --gpus 0 -- python evaluate.py model.pt
"""

from __future__ import annotations

import sys

import torch
from train import data, network


def main() -> None:
    """Print the share of points whose class the model tells right."""
    model = network()
    model.load_state_dict(torch.load(sys.argv[1], weights_only=True))
    model.eval()
    x, y = data(0).tensors
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    print(f"accuracy {right:.3f}")


if __name__ == "__main__":
    main()
