"""The first steps in somebody's repository: `kerneltest init`, `doctor` and `audit`.

`calls` gets an example call of a kernel, `probe` traces it at other lengths, `axes` tells from that which axes belong
together, `lengths` which lengths they take, and `init` writes the pairing. `doctor` asks the backends what this machine
lacks. `audit` compares the functions that reach a Pallas call (`sources`) with the pairings there are.
"""
