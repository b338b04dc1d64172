"""Critical paths by the rules of Holistic Trace Analysis (HTA)."""
