from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, tokens):
        batch, length, width = tokens.shape
        shape = (batch, length, self.heads, width // self.heads)
        query, key, value = (it.view(shape).transpose(1, 2) for it in self.project(tokens).split(width, dim=2))
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.merge(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, tokens):
        tokens = tokens + self.attend(self.norm_attention(tokens))
        return tokens + self.feed(self.norm_feed(tokens))


class PatchClassifier(nn.Module):
    """A vision transformer for images of one channel."""

    def __init__(self, side, patch, width, depth, heads, classes):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch * patch, width)
        self.position = nn.Embedding((side // patch) ** 2, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        patches = images.unfold(1, self.patch, self.patch).unfold(2, self.patch, self.patch)
        tokens = self.embed(patches.flatten(3).flatten(1, 2)) + self.position.weight
        return self.head(self.norm(self.blocks(tokens)).mean(dim=1))
