"""Other batch sizes: the throughput of the script or of its model alone, and which sizes fit into memory."""
