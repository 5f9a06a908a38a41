"""Grow and shrink a training without changing the model.

::

    from cotenant import elastic

    run = elastic.Run(workers=8, max_processes=4, seed=0)
    model, loader = run.prepare(model, dataset, batch_size=16)   # of one logical worker
    run.keep(optimizer=optimizer, scheduler=scheduler)
    for step in run.steps(loader, epochs=3):
        for x, y in step:
            loss_fn(model(x), y).backward()
        optimizer.step()                                         # p.grad is the mean over all workers
        scheduler.step()
        optimizer.zero_grad()

The training has a fixed number of logical workers; any number of processes takes turns at them, and
parameters after every step are the same, bit for bit. Light to import: PyTorch is loaded with the
first ``Run``.
"""

from __future__ import annotations

from cotenant.elastic import failing
from cotenant.elastic.identity import Grade
from cotenant.elastic.members import Retired
from cotenant.elastic.run import Run, Step

__all__ = ["Grade", "Retired", "Run", "Step"]

failing.install()
