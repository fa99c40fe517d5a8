"""The operations of Triton's IR: `table` lists them, the other modules say how each kind of them is carried out."""
