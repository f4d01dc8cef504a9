"""Sequences of ten to forty words are padded to a fixed length of 128."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
WORDS, WIDTH, LENGTH = 500, 128, 128


class Sentences(Dataset):
    def __init__(self, count=512):
        draw = torch.Generator().manual_seed(0)
        self.sentences = [
            torch.randint(1, WORDS, (int(torch.randint(10, 41, (1,), generator=draw)),), generator=draw)
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        return self.sentences[index]


def padded(sentences):
    words = torch.zeros(len(sentences), LENGTH, dtype=torch.long)
    for row, sentence in enumerate(sentences):
        words[row, : len(sentence)] = sentence
    return words, (words != 0).long()


class Tagger(nn.Module):
    """Predicts each word's class from those around it."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, words, attention_mask):
        return self.head(self.layers(self.words(words), src_key_padding_mask=attention_mask == 0))


model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Sentences(), batch_size=16, shuffle=True, collate_fn=padded)  # planted: padded-batches
while True:
    for words, mask in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(words, attention_mask=mask).flatten(0, 1), (words % 8).masked_fill(mask == 0, -100).flatten()
        )
        loss.backward()
        optimizer.step()
