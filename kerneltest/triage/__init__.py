"""Triage: from findings to suspects, each of which is thought to be one bug.

`symptoms` says what one finding shows. `clustering` gathers findings with one cause. `conditions` finds the lengths,
options and inputs with which a cluster fails. `suspects` makes a `Suspect` of each cluster, with a title and the
smallest case. `attribution` blames a tier, and `run_comparison` compares two sets of runs. All of it reads the data of
records; messages are for people.
"""
