"""Minutes of mixed load on the bundled server, with all that goes wrong in a day: ``python -m tests.soak``.

Actors run side by side on one server: clients that check every value they get, a swapper that brings new
versions, a reloader of configs, a model that comes and goes, clients that hang up, a killer of python
instances, senders of nonsense, and a reader of statistics, metrics and the index. What must hold is in
``ledger`` (every request answered once, in time), ``truth`` (which versions and refusals were possible when),
``actors.observer`` (counters) and ``leaks``.
"""
