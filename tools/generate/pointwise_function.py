"""A function of single elements, and the source of what every kernel of it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.generate.generated_kernel import Draft


@dataclass(frozen=True, slots=True)
class PointwiseFunction:
    """A function of the elements of arrays of one shape.

    Attributes:
      what: the function in words.
      inputs: the source of dtypes and domain of each array, by name.
      results: one or two expressions of these arrays in `jnp`.
      dtypes: the source of the dtype of each result.
      oracle: the source of the oracle's body.
      loaded: what follows each load, such as `.astype(jnp.float32)`.
      features: the names of the productions in it.
      options: further options of the pairing, by name, as source.
      in_place: whether the first result may take the memory of the first array.
      mosaic_gpu: whether Mosaic GPU has all of its operations and dtypes, and its rounding is the oracle's: of such
        kernels, only that is judged (docs/tolerances.md).
    """

    what: str
    inputs: Mapping[str, str]
    results: tuple[str, ...]
    dtypes: tuple[str, ...]
    oracle: str
    loaded: str = ""
    features: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)
    in_place: bool = False
    mosaic_gpu: bool = False

    @property
    def names(self) -> str:
        return ", ".join(self.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("o", "p")[: len(self.results)]

    @property
    def refs(self) -> str:
        return ", ".join(f"{name}_ref" for name in (*self.inputs, *self.outputs))

    def computed(self, index: str = "...", indent: int = 8) -> str:
        """The source that loads elements from all references, and stores the results at the same index."""
        lines = [f"{name} = {name}_ref[{index}]{self.loaded}" for name in self.inputs]
        lines += [f"{name}_ref[{index}] = {self.stored(i)}" for i, name in enumerate(self.outputs)]
        return "\n".join(" " * indent + line for line in lines)

    def stored(self, i: int) -> str:
        """The source of a result in the dtype of its array."""
        return f"({self.results[i]}).astype({self.outputs[i]}_ref.dtype)"

    def out_shape(self, shape: str = "x.shape") -> str:
        """The source of the shapes and dtypes of all results."""
        shapes = [f"jax.ShapeDtypeStruct({shape}, {dtype})" for dtype in self.dtypes]
        return shapes[0] if len(shapes) == 1 else f"[{', '.join(shapes)}]"

    def specs(self, spec: str) -> str:
        """The source of one block spec for all arrays: `in_specs` and `out_specs`."""
        outputs = spec if len(self.results) == 1 else f"[{spec}] * {len(self.results)}"
        return f"in_specs=[{spec}] * {len(self.inputs)},\n        out_specs={outputs},"

    def draft(self, frame: str, body: str, axes: str, options: Mapping[str, str], imports: str = "") -> Draft:
        """Returns a kernel of this function."""
        arguments = {name: f'kt.array("{axes}", {declared})' for name, declared in self.inputs.items()}
        counted = {f"{len(self.inputs)} inputs", f"{len(self.results)} outputs"}
        features = self.features | counted | {frame}
        return Draft(
            f"{self.what}, {frame}", body, arguments, {**options, **self.options}, self.oracle, features, imports
        )
