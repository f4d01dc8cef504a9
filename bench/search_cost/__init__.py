"""What a search costs: launches, wall time and processor time, by how slowly the script starts."""
