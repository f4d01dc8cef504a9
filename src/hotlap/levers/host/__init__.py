"""Settings of the CPU and the operating system for training."""
