# overrides the defaults of train.py
hidden = 24
learning_rate = 5e-3
