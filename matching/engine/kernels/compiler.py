"""From the source of the kernels to machine code: numba to LLVM IR, LLVM to an object file.

numba compiles each entry (`code_cache.ENTRIES`) with all that it calls. Its own wrappers, which
call into the interpreter and numba's runtime, are dropped; instead each entry gets a function under
its own name with CPython's calling convention (`loader.builtin`). What is left needs nothing but
CPython's conversion of 64-bit integers and a few functions of the C library (`log2`, `memset`). It
is emitted for this machine's CPU as position-independent code; the system's linker, where there is
one, makes a shared library of it.
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

from matching.engine.kernels import code_cache
from matching.engine.kernels.cache_lines import OPTIONS
from matching.engine.kernels.code_cache import ENTRIES

LINKERS: Final = ("cc", "gcc", "clang", "ld")
"""Commands that can make a shared library of an object file; the first that works is used."""

LINK_SECONDS: Final = 60.0
"""After which the next linker is tried. It takes 0.05 s; not measured on slow disks."""

# LLVM IR of an entry's wrapper, from CPython's convention (METH_FASTCALL: self, an array of
# arguments, their number) to numba's: a pointer for the result, one for an exception (none is ever
# raised: see `cache_lines.OPTIONS`), then the arguments; it returns whether there was an exception.
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


def compile_and_store() -> dict[str, int]:
    """Compile all entries, store the code on disk and load it: the entries' addresses by name.

    Code that cannot be stored is loaded from memory instead.
    """
    names, code = tuple(ENTRIES), object_file()
    library = link(code)
    try:
        code_cache.store(code, code_cache.OBJECT)
        if library is not None:
            code_cache.store(library, code_cache.LIBRARY)
    except OSError:
        return code_cache.load_object(code, names)
    return code_cache.load(names) or code_cache.load_object(code, names)


def object_file() -> bytes:
    """The machine code of all entries for this machine's CPU, as the bytes of an object file."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # not known to LLVM on every system
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
    passes.add_global_dead_code_eliminate_pass()  # drops numba's own wrappers
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    code: bytes = machine.emit_object(module)
    return code


def _entry(name: str) -> Any:
    """The LLVM module of one entry: its wrapper under its own name, and all that it calls."""
    kernel = getattr(import_module(f"matching.engine.kernels.{ENTRIES[name]}"), name).py_func
    count = kernel.__code__.co_argcount
    result = types.void if kernel.__annotations__["return"] == "None" else types.int64
    signature = result(*[types.int64] * count)
    compiled = numba.cfunc(signature, **OPTIONS)(kernel)
    numbers = [f"i64 %a{number}" for number in range(count)]
    wrapper = WRAPPER.format(
        name=name,
        native=compiled.native_name.removeprefix("cfunc."),
        types=", ".join(["ptr", "ptr", *["i64"] * count]),
        loads="".join(LOAD.format(n=number) for number in range(count)),
        values=", ".join(["ptr %result", "ptr %exception", *numbers]),
    )
    module = llvm.parse_assembly(compiled.inspect_llvm())
    module.link_in(llvm.parse_assembly(wrapper))
    return module


def link(code: bytes) -> bytes | None:
    """The bytes of a shared library made of an object file; None if there is no working linker."""
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
