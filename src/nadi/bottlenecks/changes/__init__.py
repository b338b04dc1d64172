"""Questions such as "what if this kernel took half the time?"."""
