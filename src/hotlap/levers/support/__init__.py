"""Code that several levers share. No levers."""
