"""What hotlap can be asked to do, one file or folder each."""
