"""What the processor and the system do for training."""
