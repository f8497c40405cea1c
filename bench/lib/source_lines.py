"""How many lines of Rust the program has, without its tests."""

import os
import re


def of_program(root):
    """(lines of code, all lines) of `src` and `crates`: without folders `tests`, `benches` and `examples`, and without
    everything that is `#[cfg(test)]`. Lines of code are those that are neither empty nor a comment."""
    code = all_lines = 0
    for path in sorted(_files(root)):
        with open(path, encoding="utf-8") as file:
            lines, _ = without_tests(file.read().splitlines())
        all_lines += len(lines)
        code += sum(1 for line in lines if line.strip() and not line.lstrip().startswith("//"))
    return code, all_lines


def without_tests(lines):
    """(the lines that are in the program, names of the modules that are tests in files of their own)."""
    kept, modules, number = [], [], 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.strip() != "#[cfg(test)]":
            kept.append(line)
            continue
        indent = line[:len(line) - len(line.lstrip())]
        while lines[number].strip().startswith("#["):
            number += 1
        module = re.match(r"\s*(?:pub(?:\([^)]*\))? )?mod (\w+);", lines[number])
        modules += [module[1]] if module else []
        # An item of one line ends with a semicolon or a comma; a longer one with a brace at its own indentation.
        if lines[number].rstrip()[-1:] in (";", ",") or lines[number].rstrip().endswith("}"):
            number += 1
            continue
        while not re.match(rf"{indent}\S", lines[number + 1]):
            number += 1
        number += 2
    return kept, modules


def _files(root):
    """The files of the program's own modules."""
    found, tests = set(), set()
    for top in ("src", "crates"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [name for name in folders if name not in ("tests", "benches", "examples", "target")]
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith(".rs"):
                    found.add(path)
                    with open(path, encoding="utf-8") as file:
                        _, modules = without_tests(file.read().splitlines())
                    # `mod tests;` in `a.rs` is `a/tests.rs`; in `mod.rs`, `lib.rs` and `main.rs` it is beside.
                    beside = folder if name in ("mod.rs", "lib.rs", "main.rs") else path[:-len(".rs")]
                    tests.update(os.path.join(beside, module) for module in modules)
    own = lambda path: not any(path == f"{test}.rs" or path.startswith(f"{test}/") for test in tests)
    return filter(own, found)
