"""Programs of some lines, each of which makes the recorder write records of a kind."""

from __future__ import annotations

SHORT_PROGRAMS = {
    # Steps of an optimizer with many parameters, whose gradients are not set to zero, and of one without effect.
    "optimizing": (
        "import torch; w = torch.nn.Parameter(torch.ones(4_000_000)); o = torch.optim.Adam([w])\n"
        "f = torch.compile(lambda x: (x * x).sum()); [(f(w).backward(), o.step()) for _ in range(3)]\n"
        "v, u = torch.nn.Parameter(w.detach()[:64].bfloat16()), torch.nn.Parameter(torch.ones(1))\n"
        "v.grad, o = v.detach(), torch.optim.SGD([v, u], lr=1e-6)\n"
        "[o.step() for _ in range(6)]"
    ),
    # Steps of an optimizer that lacks the layer which a plain list of the module holds.
    "listing": (
        "import torch; net = torch.nn.Linear(4, 4); net.more = [torch.nn.Linear(4, 4)]\n"
        "f, o = torch.compile(lambda x: net.more[0](net(x)).sum()), torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "[(f(torch.ones(2, 4)).backward(), o.step()) for _ in range(6)]"
    ),
    # Steps of an optimizer whose parameters share memory with another module.
    "sharing": (
        "import torch; net, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)\n"
        "other.load_state_dict(net.state_dict(), assign=True)\n"
        "f, o = torch.compile(lambda x: (net(x) - other(x)).sum()), torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "[(f(torch.ones(2, 4)).backward(), o.step()) for _ in range(3)]"
    ),
    # Steps of an optimizer whose gradients are cleared between backward passes.
    "clearing": (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "part = lambda: (o.zero_grad(), f(torch.ones(2, 4)).sum().backward())\n"
        "[(part(), part(), o.step()) for _ in range(6)]"
    ),
    # Gradients are clipped after each step of an optimizer.
    "clipping": (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "clip = lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
        "[(f(torch.ones(2, 4)).sum().backward(), o.step(), clip(), o.zero_grad()) for _ in range(7)]"
    ),
    # A hook is added to a module after its compile.
    "hooking": (
        "import torch; net = torch.nn.Sequential(torch.nn.Linear(4, 4)); f, x = torch.compile(net), torch.ones(2, 4)\n"
        "f(x); net[0].register_forward_hook(lambda *_: None); f(x)"
    ),
    # A checkpoint of a compiled module loads nothing.
    "loading": (
        "import torch; net, f = torch.nn.Linear(4, 4), torch.compile(torch.nn.Linear(4, 4))\n"
        "net.load_state_dict(f.state_dict(), strict=False); f(torch.ones(2, 4))"
    ),
    # A program restores the weights of a step from a dictionary that is no copy.
    "restoring": (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "step = lambda: (f(torch.ones(2, 4)).sum().backward(), o.step()); step()\n"
        "best = net.state_dict(); step(); net.load_state_dict(best)"
    ),
    # A hook is added to a parameter in each step.
    "piling": (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "hook = lambda: net.weight.register_hook(lambda grad: grad * 0.9)\n"
        "[(hook(), f(torch.ones(2, 4)).sum().backward(), o.step(), o.zero_grad()) for _ in range(18)]"
    ),
    # Each step sets the same seed before a dropout.
    "seeding": (
        "import torch; net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())\n"
        "f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "[(torch.manual_seed(7), f(torch.ones(2, 4)).sum().backward(), o.step(), o.zero_grad()) for _ in range(8)]"
    ),
    # Each step takes the first batch of a loader.
    "repeating": (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "loader = torch.utils.data.DataLoader(torch.ones(8, 4), 2)\n"
        "[(f(next(iter(loader))).sum().backward(), o.step(), o.zero_grad()) for _ in range(9)]"
    ),
    # A module is left in eval mode.
    "evaluating": (
        "import torch; net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())\n"
        "f, o, x = torch.compile(net), torch.optim.SGD(net.parameters()), torch.ones(2, 4)\n"
        "train = lambda: (f(x).sum().backward(), o.step(), o.zero_grad())\n"
        "train(); net.eval()\n"
        "with torch.no_grad(): f(x)\n"
        "[train() for _ in range(6)]"
    ),
    # A loss outside of compiled code combines each prediction with all targets.
    "pairing": (
        "import torch; f = torch.compile(torch.nn.Linear(4, 1))\n"
        "[(f(torch.ones(3, 4)) - torch.ones(3)).square().mean().backward() for _ in range(2)]"
    ),
    # A backward pass waits for the forward passes of all micro-batches.
    "summing": (
        "import torch; layer = lambda: torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh())\n"
        "f = torch.compile(torch.nn.Sequential(layer(), layer(), layer()))\n"
        "[sum(f(torch.ones(2048, 512)).square().mean() for _ in range(4)).backward() for _ in range(2)]"
    ),
    # The parameters become NaN in a step.
    "losing": (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "[((f(torch.ones(2, 4)) * float('nan')).sum().backward(), o.step(), o.zero_grad()) for _ in range(2)]"
    ),
    # A factor of the loss makes every gradient zero.
    "vanishing": (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "[((f(torch.ones(2, 4)) * 0).sum().backward(), o.step(), o.zero_grad()) for _ in range(18)]"
    ),
    # A weight changes after the compile that made a constant of it, and that measured choices for its product.
    "freezing": (
        "import torch, torch._inductor.config as config; config.freezing = config.max_autotune = True\n"
        "config.max_autotune_gemm_backends = 'CPP,ATEN'; net = torch.nn.Linear(16, 16)\n"
        "f = torch.compile(net); torch.set_grad_enabled(False); f(torch.ones(2, 16)); net.weight.add_(1)\n"
        "f(torch.ones(2, 16))"
    ),
    # A program keeps what a compiled function writes again in each call.
    "keeping": (
        "import torch\n"
        "out, kept = torch.zeros(4), []\n"
        "@torch.compile\n"
        "def write(x): out.copy_(x * 2); return out\n"
        "for _ in range(9): kept.append(write(torch.rand(4)))"
    ),
    # A program whose cache keeps an input of each call.
    "caching": (
        "import functools, torch; from stepscope.tracer.runtime.lifetimes import kept_tensors\n"
        "kept_tensors.MOST_SHARE, kept_tensors.SECONDS = 1e9, 60  # the program is short\n"
        "mask = functools.cache(lambda x: x[:, None] > x); f = torch.compile(lambda x, m: (x * m).sum())\n"
        "for _ in range(20): f(torch.rand(512), mask(torch.rand(512)))"
    ),
}
