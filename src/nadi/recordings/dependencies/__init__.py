"""What an operation waits for."""
