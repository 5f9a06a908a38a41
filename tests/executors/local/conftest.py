"""Fixtures of this room."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from hostlab import lab

__all__ = ["lab"]
