"""How right the findings are: planted causes found, lines named, clean scripts left in peace."""
