"""Checks Triton model repositories offline: configurations, graphs, warm-up, labels, versions, ensembles.

``run`` ties the parts together, ``rules`` holds the table of what is looked for, ``positions`` finds the line
of each field. Nothing is loaded or run, and every part copes with files that nobody vouched for.
"""
