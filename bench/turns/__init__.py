"""What blocks in several turns give beside neighbours that come and go: measured."""
