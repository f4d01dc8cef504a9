"""The kernels that compute the model's operators."""
