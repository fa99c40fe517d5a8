"""Shrinking: the smallest case that fails in the same way as a recorded one.

The search is a greedy descent, as in delta debugging (Zeller and Hildebrandt, 2002): it tries simpler candidates in a
fixed order, and goes on from each that fails in the same way.

Order of preference. One case is preferred to another if it is smaller by the first of these by which they differ:

1. the signature: no dim is longer, and a dim is shorter, or a dtype or a static argument is the plainest (float32, and
   the first declared option);
2. the number of arguments, among those whose elements depend on each other, that do not have their simplest values:
   equal parts of a partition, a permutation in order. These change only as a whole;
3. the number of other elements that are neither 0 nor 1, nor the nearest values that the argument may have;
4. the number of other elements that do not have their simplest value: 0, or the one that hides nothing in a mask;
5. how hard the numbers are to read: 2 and -1 are easiest, then integers up to 10, powers of two, integers with one
   nonzero digit, other integers, and fractions.

Why it ends. Each case that the search goes on from is preferred to the one before, and the order has no infinite
descending chain: lengths and counts are natural numbers, the rest are finite sets. From each case there is a finite
number of candidates, and none is tried twice. The search ends when no candidate fails, or when its time is over.
"""
