"""Makes docs/python/reference.md of the package's docstrings.

python3 reference.py FILE            writes it
python3 reference.py --check FILE    exits 1 where it is not up to date
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import inspect
import pathlib
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import holdfast

# In this order; what is in none of them is an error. The names of another module than
# holdfast begin with the module's.
GROUPS = {
    "Training": ["connect", "Cluster", "batch_indices", "digest", "load_checkpoint"],
    "What is told": ["Status", "Outcomes", "Checkpoint"],
    "Variables": [
        "Variable", "Initializer", "Zeros", "Constant", "Uniform", "Normal", "TruncatedNormal",
        "Glorot", "He", "Compression", "Partitioner", "FixedShards", "MinSize", "MaxSize",
        "EmbeddingTable",
    ],
    "Optimizers": ["Optimizer", "Sgd", "Momentum", "Adagrad", "RmsProp", "Adam", "AdamW", "Ftrl"],
    "Learning rates": [
        "LearningRateSchedule", "Piecewise", "Piece", "Exponential", "Polynomial", "Cosine",
    ],
    "The job": [
        "Consistency", "Synchronous", "Asynchronous", "GradientClipping", "Checkpoints",
        "LostWorkers", "Timeouts", "LossScale", "Evaluation", "KeepBest", "EarlyStopping",
        "Metric",
    ],
    "Exceptions": [
        "Error", "RolledBack", "Fenced", "JobFailed", "Stopped", "Unavailable", "Refused",
    ],
    "PyTorch": [
        "torch.Optimizer", "torch.Embedding", "torch.EmbeddingBag", "torch.state_dict",
        "torch.save_state_dict",
    ],
    "JAX": ["jax.Trainer", "jax.load_checkpoint"],
}  # fmt: skip

# Modules that need a framework. Here each framework is a stand-in.
FRAMEWORKS = ["jax", "torch"]

INTRODUCTION = """# Python reference

Made by `python/reference.py` from the docstrings of `python/holdfast`. To begin with:
[quickstart.md](quickstart.md).
"""


class Name(type):
    """A class with whatever attributes are asked for, which are such classes."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})


class StandIn(types.ModuleType):
    """A framework as far as the import of our module needs it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})


class Frameworks(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for each framework, and for each module in it."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in FRAMEWORKS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> StandIn:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def annotation(text: object) -> str:
    """As it stands in the source, without our module names."""
    return re.sub(r"\b(job|npt|np)\.", "", str(text)).replace("Float32Array", "ndarray")


def parameter(one: inspect.Parameter) -> str:
    text = "**" + one.name if one.kind is one.VAR_KEYWORD else one.name
    if one.annotation is not inspect.Parameter.empty:
        text += f": {annotation(one.annotation)}"
    if one.default is not inspect.Parameter.empty:
        text += f" = {one.default!r}"
    return text


def signature(name: str, function: object, *, prefix: str = "") -> str:
    """In one line, or with one parameter to a line."""
    described = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [one for one in described.parameters.values() if one.name != "self"]
    texts: list[str] = []
    star = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not star:
            texts.append("*")
            star = True
        texts.append(parameter(one))
    result = described.return_annotation
    end = ")"
    if result is not inspect.Signature.empty and result not in ("None", None):
        end = f") -> {annotation(result)}"
    line = f"{prefix}{name}({', '.join(texts)}{end}"
    if len(line) <= 100:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {text},\n" for text in texts) + end


def docstring(thing: object) -> Iterator[str]:
    """Sections become lists; the rest is Markdown already."""
    text = re.sub(r"``(.*?)``", r"`\1`", inspect.getdoc(thing) or "")
    inside = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields):", line)
        if heading:
            inside = heading[1]
            yield f"**{heading[1]}**\n"
        elif inside and line.strip():
            entry = re.fullmatch(r"    (\w[\w, ]*): (.*)", line)
            if entry and inside not in ("Returns", "Yields"):
                names = ", ".join(f"`{name}`" for name in entry[1].split(", "))
                yield f"- {names}: {entry[2]}"
            elif line.startswith("        "):
                yield "  " + line.strip()
            else:
                yield line.strip()
        else:
            yield line


def members(cls: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(cls).items():
        if not name.startswith("_") and (
            inspect.isfunction(member) or isinstance(member, property)
        ):
            yield name, member


def of_class(name: str, cls: type) -> Iterator[str]:
    base = cls.__mro__[1]
    is_subclass = base.__name__ in holdfast.__all__
    yield "```python"
    made_by_another = name in ("Cluster", "Status", "Outcomes", "Checkpoint")
    if made_by_another:
        yield f"class {name}"
    elif issubclass(cls, Exception):
        yield f"class {name}({base.__name__})"
    else:
        yield signature(name, cls, prefix="class ")
    yield "```\n"
    yield from docstring(cls)
    if is_subclass and not issubclass(cls, Exception) and dataclasses.is_dataclass(cls):
        yield f"\nOne of: `{base.__name__}`."
    for member_name, member in members(cls):
        yield f"\n#### {name}.{member_name}\n"
        if isinstance(member, property):
            result = annotation(inspect.signature(member.fget).return_annotation)  # type: ignore[arg-type]
            yield f"```python\n{member_name}: {result}\n```\n"
        else:
            yield f"```python\n{signature(member_name, member)}\n```\n"
        yield from docstring(member)


def public() -> dict[str, Any]:
    """What users may name, by its name within holdfast."""
    found = {name: getattr(holdfast, name) for name in holdfast.__all__}
    sys.meta_path.insert(0, Frameworks())
    for framework in FRAMEWORKS:
        module = importlib.import_module(f"holdfast.{framework}")
        found |= {f"{framework}.{name}": getattr(module, name) for name in module.__all__}
    return found


def reference() -> str:
    found = public()
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(found):
        different = set(grouped) ^ set(found)
        raise SystemExit(f"reference.py: in no group, or not there: {', '.join(different)}")
    lines = [INTRODUCTION]
    for title, names in GROUPS.items():
        lines.append(f"## {title}\n")
        for name in names:
            thing = found[name]
            lines.append(f"### {'holdfast.' if '.' in name else ''}{name}\n")
            name = name.rpartition(".")[2]
            if inspect.isclass(thing):
                lines.extend(of_class(name, thing))
            else:
                lines.append(f"```python\n{signature(name, thing)}\n```\n")
                lines.extend(docstring(thing))
            lines.append("")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def main() -> int:
    path = pathlib.Path(sys.argv[-1])
    text = reference()
    if "--check" not in sys.argv:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} is not up to date: run python3 python/reference.py {path}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
