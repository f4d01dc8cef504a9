"""The procedures of hotlap, one file or folder each."""
