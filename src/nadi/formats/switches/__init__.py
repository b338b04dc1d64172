"""What the system recorded of its scheduler: switches of threads and their wakeups."""
