"""Policy gradients: rollouts by inference calls of the compiled policy, then one update from what they met."""

from __future__ import annotations

import torch

ITERATIONS, STATES, STEPS = 6, 8, 5


def main() -> None:
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(STATES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    compiled = torch.compile(policy)
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    turn = torch.linalg.qr(torch.randn(STATES, STATES)).Q
    for _ in range(ITERATIONS):
        state, states, actions, rewards = torch.randn(16, STATES), [], [], []
        with torch.no_grad():
            for _ in range(STEPS):
                action = torch.distributions.Categorical(logits=compiled(state)).sample()
                states.append(state)
                actions.append(action)
                rewards.append(state[torch.arange(16), action])
                state = state @ turn
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        logits = compiled(torch.cat(states))
        chosen = torch.distributions.Categorical(logits=logits).log_prob(torch.cat(actions))
        loss = -(chosen * returns.flatten()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"LOSS {loss.item():.10f}")
    print(f"ITERATIONS {ITERATIONS}")


if __name__ == "__main__":
    main()
