"""The workload that ships with the package: ``hotlap demo`` tunes it."""
