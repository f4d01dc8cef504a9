"""A run that is watched: its rows as a bounded series, and the alarms that they raise."""
