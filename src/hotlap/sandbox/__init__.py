"""How the kernel keeps a trial from changing anything outside its run folder. See README.md in this folder."""
