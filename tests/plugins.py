"""What a pytest that a test starts loads: kerneltest, no plugin that would put tests into another order, and neither
Hypothesis nor jaxtyping, whose imports take half a second."""

PLUGINS = ("-p", "kerneltest", "-p", "no:randomly", "-p", "no:hypothesispytest", "-p", "no:jaxtyping")
