"""``python -m nadi``."""

import sys

from nadi.cli import main

sys.exit(main())
