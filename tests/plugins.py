"""What a pytest that a test starts loads: kerneltest, and no plugin that would put tests into another order."""

PLUGINS = ("-p", "kerneltest", "-p", "no:randomly")
