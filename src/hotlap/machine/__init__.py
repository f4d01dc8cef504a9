"""What this machine is (facts), what it reaches (ceilings), and what is wrong with it (doctor)."""
