"""Measure the structure of the code: ``python -m benchmarks.code_structure [FOLDER ...]``.

Prints one JSON line per run: lines per function and file, modules per folder, share of comment lines, import
cycles, class names that occur more than once, and annotations that say ``Any``. Only Python files below the
given folders count (default: ``harness`` and ``tasks``).

Definitions:

- a function's lines run from ``def`` to its last line, without decorators and nested functions' own rows;
- a file's lines are all its lines; ``__init__.py`` files without code are left out of files and folders;
- comments on a line of their own and behind code both count; docstrings do not;
- an import cycle is a strongly connected component of at least two modules; imports inside functions count,
  imports under ``TYPE_CHECKING`` do not;
- ``Any`` counts once per annotation (of a parameter, a return value or a variable) that contains it.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def sources(folders: Sequence[Path]) -> list[Path]:
    """Python files below the folders, sorted; empty ``__init__.py`` files (docstring only) are left out."""
    return [path for folder in folders for path in sorted(folder.rglob("*.py")) if _has_code(path)]


def _has_code(path: Path) -> bool:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return path.name != "__init__.py" or any(not isinstance(node, ast.Expr) for node in body)


def spread(values: Sequence[int]) -> str:
    """Median, 90th percentile and maximum as ``median/p90/max``."""
    ordered = sorted(values) or [0]
    return f"{round(statistics.median(ordered))}/{ordered[int(0.9 * (len(ordered) - 1))]}/{ordered[-1]}"


def function_lines(trees: Sequence[ast.Module]) -> list[int]:
    """Lines of each function and method."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]


def comment_share(paths: Sequence[Path]) -> float:
    """Comments (on a line of their own or behind code) as a percentage of all lines that are not empty."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    comments = sum(
        token.type == tokenize.COMMENT
        for text in texts
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    return 100 * comments / max(1, sum(bool(line.strip()) for text in texts for line in text.splitlines()))


def any_annotations(tree: ast.Module) -> int:
    """Annotations that contain ``Any``."""
    return sum(
        any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(annotation))
        for annotation in _annotations(tree)
    )


def _annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation


def module_name(path: Path) -> str:
    """The dotted name of a file of this project: from its topmost folder with an ``__init__.py``."""
    top = path
    while (top.parent / "__init__.py").exists():
        top = top.parent
    parts = path.relative_to(top.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(paths: Sequence[Path]) -> dict[str, set[str]]:
    """Modules and the modules of the same set they import, lazily or not."""
    trees = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    return {
        name: {target for target in _imports(tree, set(trees)) if target != name}
        for name, tree in trees.items()
    }


def _imports(tree: ast.Module, known: set[str]) -> set[str]:
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= full & known or {node.module}
    return found & known


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of at least two modules, largest first."""
    reach = {name: _reachable(graph, name) for name in graph}
    seen: set[str] = set()
    found = []
    for name in graph:
        members = sorted(other for other in reach[name] if name in reach[other])
        if len(members) > 1 and name not in seen:
            found.append(members)
            seen |= set(members)
    return sorted(found, key=len, reverse=True)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    todo, seen = [start], {start}
    while todo:
        for target in graph[todo.pop()] - seen:
            seen.add(target)
            todo.append(target)
    return seen


def measure(folders: Sequence[Path]) -> dict[str, object]:
    """All figures of the module's description."""
    paths = sources(folders)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    classes = Counter(
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    found = cycles(import_graph(paths))
    per_folder = Counter(path.parent for path in paths if path.name != "__init__.py")
    return {
        "files": len(paths),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths),
        "function_lines": spread(function_lines(trees)),
        "file_lines": spread([len(path.read_text(encoding="utf-8").splitlines()) for path in paths]),
        "modules_per_folder": spread(list(per_folder.values())),
        "comment_percent": round(comment_share(paths), 1),
        "import_cycles": len(found),
        "largest_cycle": len(found[0]) if found else 0,
        "class_names_used_twice_or_more": sorted(name for name, n in classes.items() if n > 1),
        "any_annotations": sum(any_annotations(tree) for tree in trees),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the structure of the code.")
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "harness", ROOT / "tasks"])
    print(json.dumps(measure(parser.parse_args().folders)))


if __name__ == "__main__":
    main()
