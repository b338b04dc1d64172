"""Text in charts."""

from __future__ import annotations

import html
import re

# what XML cannot have: a browser refuses the whole drawing
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """Return a text as XML and HTML take it; control characters are U+FFFD."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text))
