"""From the text of the kernels to machine code: numba to LLVM's language, LLVM to an object file.

numba compiles each entry (`kernels.ENTRIES`) with all that it calls. Its own wrappers, which ask
the interpreter for this and that, are thrown away; instead each entry gets a function under its
own name that CPython can call with integers (`kernels.at`). What is left needs nothing but that of
CPython which makes integers of 64 bits and back, and a few functions of the C library (`log2`,
`memset`). It is emitted for this very CPU, independent of its position; the system's linker, where
there is one, makes a shared library of it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numba
from numba.core import types

from matching.engine import kept
from matching.engine.kernels import ENTRIES
from matching.engine.lines import OPTIONS

LINKERS: Final = ("cc", "gcc", "clang", "ld")
"""What makes a library of an object file, as far as it is there."""

LINK_SECONDS: Final = 60.0
"""It takes a twentieth of one. Wild guess."""

# From CPython's convention (METH_FASTCALL: no self, an array of arguments and their number) to
# numba's: a place for the result, one for an exception (none is ever raised: see `lines.OPTIONS`),
# then the arguments; what it returns is whether there was an exception.
WRAPPER: Final = """
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @"{native}"({types})
define ptr @{name}(ptr %self, ptr %arguments, i64 %count) {{
  %result = alloca i64
  %exception = alloca ptr
  store i64 0, ptr %result
{loads}
  %status = call i32 @"{native}"({values})
  %value = load i64, ptr %result
  %integer = call ptr @PyLong_FromLongLong(i64 %value)
  ret ptr %integer
}}
"""
LOAD: Final = """
  %place{n} = getelementptr ptr, ptr %arguments, i64 {n}
  %object{n} = load ptr, ptr %place{n}
  %a{n} = call i64 @PyLong_AsLongLong(ptr %object{n})
"""


def make() -> dict[str, int]:
    """Compile, keep what came out, and load it: the entries' addresses by name.

    What cannot be kept is loaded all the same.
    """
    names, code = tuple(ENTRIES), object_file()
    library = link(code)
    try:
        kept.keep(code, kept.OBJECT)
        if library is not None:
            kept.keep(library, kept.LIBRARY)
    except OSError:
        return kept.load_object(code, names)
    return kept.load(names) or kept.load_object(code, names)


def object_file() -> bytes:
    """The machine code of all entries."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM cannot tell them for every system
        features = ""
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic"
    )
    module = llvm.parse_assembly("")
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    for name in ENTRIES:
        module.link_in(_entry(name))
    for part in (*module.functions, *module.global_variables):
        if not part.is_declaration and part.name not in ENTRIES:
            part.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()  # numba's wrappers
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    code: bytes = machine.emit_object(module)
    return code


def _entry(name: str) -> Any:
    """One entry under its name, with all that it calls, as a module of LLVM's."""
    entry = ENTRIES[name]
    kernel = getattr(import_module(f"matching.engine.{entry.module}"), name).py_func
    result = types.void if kernel.__annotations__["return"] == "None" else types.int64
    signature = result(*[types.int64] * entry.arguments)
    compiled = numba.cfunc(signature, **OPTIONS)(kernel)
    numbers = [f"i64 %a{number}" for number in range(entry.arguments)]
    wrapper = WRAPPER.format(
        name=name,
        native=compiled.native_name.removeprefix("cfunc."),
        types=", ".join(["ptr", "ptr", *["i64"] * entry.arguments]),
        loads="".join(LOAD.format(n=number) for number in range(entry.arguments)),
        values=", ".join(["ptr %result", "ptr %exception", *numbers]),
    )
    module = llvm.parse_assembly(compiled.inspect_llvm())
    module.link_in(llvm.parse_assembly(wrapper))
    return module


def link(code: bytes) -> bytes | None:
    """A shared library of an object file; None if nothing here can make one."""
    with tempfile.TemporaryDirectory() as work:
        source, target = Path(work) / "kernels.o", Path(work) / "kernels.so"
        source.write_bytes(code)
        for linker in filter(None, map(shutil.which, LINKERS)):
            alone = [] if Path(linker).name == "ld" else ["-nostdlib"]
            command = [linker, "-shared", *alone, "-o", str(target), str(source)]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=LINK_SECONDS)
                return target.read_bytes()
            except (OSError, subprocess.SubprocessError):
                continue
    return None
