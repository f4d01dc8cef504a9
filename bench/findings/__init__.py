"""How accurate the findings are: planted causes found, lines named, nothing found in clean scripts."""
