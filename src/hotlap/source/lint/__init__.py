"""Bad patterns of training code that can be seen without running it: one file each, and the engine that asks them."""
