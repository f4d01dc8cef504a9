"""A CUDA device for torch's CPU build: real tensors on ``cuda:0``, and simulated time, memory and driver."""
