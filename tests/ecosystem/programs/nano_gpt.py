"""A small GPT in training: AdamW with decay by groups, made-up tokens, an evaluation every few iterations."""

from __future__ import annotations

import torch
from torch.nn import functional

ITERATIONS, EVALUATE_EVERY, WIDTH, TOKENS = 9, 3, 32, 64


class Block(torch.nn.Module):
    """Attention and a perceptron, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention, self.mix = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.attention(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        down: torch.Tensor = self.down(functional.gelu(self.up(self.norms[1](x))))
        return x + down


class GPT(torch.nn.Module):
    """Two blocks between an embedding and a head that share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(TOKENS, WIDTH), torch.nn.Embedding(16, WIDTH)
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.head = torch.nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.blocks(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))
        logits = self.head(x)
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, TOKENS, (4, 17))
    return tokens[:, :-1], tokens[:, 1:]


def main() -> None:
    torch.manual_seed(0)
    gpt = GPT()
    model = torch.compile(gpt)
    decayed = [p for p in gpt.parameters() if p.dim() > 1]
    others = [p for p in gpt.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for iteration in range(ITERATIONS):
        if iteration % EVALUATE_EVERY == 0:
            gpt.eval()
            with torch.no_grad():
                losses = [model(*batch())[1].item() for _ in range(2)]
            print(f"EVALUATION {iteration} {sum(losses) / len(losses):.10f}")
            gpt.train()
        _, loss = model(*batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(f"LOSS {loss.item():.10f}")
    print(f"ITERATIONS {ITERATIONS}")


if __name__ == "__main__":
    main()
