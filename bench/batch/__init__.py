"""The knee that a search for the batch size finds, against an exhaustive sweep."""
