"""What isolation costs: a launch's start, and a training step."""
