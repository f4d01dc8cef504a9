"""What hotlap can do, one file or folder each."""
