def looks_like(head: bytes) -> bool:
    return False
