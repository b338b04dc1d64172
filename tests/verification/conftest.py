"""The programs in ``verification/`` are scripts: their folder is put where imports look."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "verification"))
