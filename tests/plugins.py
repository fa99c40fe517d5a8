"""What a pytest that a test starts loads: kerneltest, no plugin that would put tests into another order, and not
Hypothesis, whose import takes half a second."""

PLUGINS = ("-p", "kerneltest", "-p", "no:randomly", "-p", "no:hypothesispytest")
