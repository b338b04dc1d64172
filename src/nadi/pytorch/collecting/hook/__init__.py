"""What runs in the recorded process before the program does."""
