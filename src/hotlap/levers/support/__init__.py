"""What several levers share. No levers."""
