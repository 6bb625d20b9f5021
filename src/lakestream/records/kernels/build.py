"""`python -m lakestream.records.kernels.build MODULE PATH`: compiles every entry of a module into one object file.

numba compiles each entry with an error path into the interpreter, whose helpers exist only where numba is loaded.
Kernels never raise, so those helpers become traps and the object needs nothing from outside but the C library's memory
functions.
"""

import importlib
import os
import sys
import tempfile
from pathlib import Path

import llvmlite.binding as llvm

C_LIBRARY = frozenset({"memcpy", "memmove", "memset"})


def _traps(module: llvm.ModuleRef) -> str:
    """Definitions, in LLVM's assembly, for everything the module only declares."""
    lines = ["declare void @llvm.trap()"]
    for function in module.functions:
        if function.is_declaration and function.name not in C_LIBRARY and not function.name.startswith("llvm."):
            signature = function.global_value_type
            result, *arguments = map(str, signature.elements)
            lines.append(
                f"define {result} @{function.name}({', '.join(arguments)}) {{ call void @llvm.trap() unreachable }}"
            )
    lines += [f"@{variable.name} = global ptr null" for variable in module.global_variables if variable.is_declaration]
    return "\n".join(lines)


def build(module_name: str) -> bytes:
    """The object file: one function per entry of the module's `compiled`, under the entry's name."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    whole = llvm.parse_assembly("")
    entries = importlib.import_module(module_name).compiled()
    for name, entry in entries.items():
        module = llvm.parse_assembly(entry.inspect_llvm())
        module.get_function(entry.native_name).name = name
        whole.link_in(module)
    whole.link_in(llvm.parse_assembly(_traps(whole)))
    for definition in (*whole.functions, *whole.global_variables):
        if not definition.is_declaration and definition.name not in entries:
            definition.linkage = "internal"
    whole.verify()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        codemodel="jitdefault",
        jit=True,
    )
    return bytes(machine.emit_object(whole))


def main(module_name: str, path: Path) -> None:
    """Writes the object whole or not at all: several processes may build at once."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as target:
        target.write(build(module_name))
    os.replace(target.name, path)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
