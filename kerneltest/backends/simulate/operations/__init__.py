"""The operations of Triton IR: `table` lists them, and the other modules define what they compute."""
