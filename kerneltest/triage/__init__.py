"""Triage: from findings to suspects, each of which is thought to be one bug.

`symptoms` says what one finding shows. `clustering` gathers findings with one cause. `predicates` finds the lengths and
options with which a cluster fails, `input_conditions` and `magnitude_conditions` what its inputs have in common.
`suspects` makes a `Suspect` of each cluster, with a title and the smallest case.
`attribution` blames a tier. `diff`, `changes` and `suspect_changes` compare two sets of runs. All of it reads the data
of records; messages are for people.
"""
