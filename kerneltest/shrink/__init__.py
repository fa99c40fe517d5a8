"""Shrinking: the smallest case that fails in the same way as a recorded one.

The search is a greedy descent, as in delta debugging (Zeller and Hildebrandt, 2002): it tries simpler candidates in a
fixed order, and goes on from each that fails in the same way. `shrinker` is the search, `smaller_signatures` proposes
signatures with the arguments for them, and `simpler_values` proposes values.

Order of preference. One case is preferred to another for the first of these in which they differ:

1. its signature: no dim is longer, and a dim is shorter, or a dtype or a static argument is the plainest (float32, and
   the first declared option);
2. fewer elements that are neither 0 nor 1, or that are not the nearest values which the argument may have;
3. fewer ones: zeros, masks that hide nothing, equal parts of a partition, indices in order;
4. numbers that are easier to read: 2 and -1, then integers up to 10, powers of two, integers with one nonzero digit,
   other integers, fractions.

Why it ends. Each case that the search goes on from is preferred to the one before. The order has no infinite descending
chain: lengths and numbers of elements are natural numbers, and the others are finite sets. From each case there is a
finite number of candidates, and none is tried twice. The search ends when no candidate fails any more, or when its time
is over.
"""
