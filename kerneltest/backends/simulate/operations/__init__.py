"""The operations of Triton IR: `operation_table` lists them, and the other modules define what they compute."""
