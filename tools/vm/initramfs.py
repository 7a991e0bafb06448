"""Writes an initramfs of files, and of kernel modules with all that they depend on.

usage: initramfs.py OUTPUT MODULES_FOLDER MODULE,MODULE... NAME=FILE...

Without modules (an empty word) it has the files alone. The archive is cpio's "newc" form (kernel:
Documentation/driver-api/early-userspace/buffer-format.rst), uncompressed. The modules' names lie in /modules in the order to insert them in, and each in /lib.
"""
import lzma
import pathlib
import sys


def module_files(folder):
    return {path.name.split(".")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}


def read_module(path):
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def depends(module):
    """The names in a module's .modinfo, which is a list of key=value strings that end with a zero."""
    start = module.find(b"\0depends=")
    if start < 0:
        raise ValueError("a module without .modinfo")
    value = module[start + 9 :].split(b"\0", 1)[0].decode()
    return [name.replace("-", "_") for name in value.split(",") if name]


def collect(files, name, modules):
    """Adds a module to `modules` behind those that it depends on."""
    if name in modules:
        return
    module = read_module(files[name])
    for other in depends(module):
        collect(files, other, modules)
    modules[name] = module


def entry(inode, name, mode, data):
    name = name.encode() + b"\0"
    fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    padded = lambda part: part + b"\0" * (-len(part) % 4)
    return padded(header + name) + padded(data)


def main(output, folder, names, *files):
    modules = {}
    known = module_files(pathlib.Path(folder))
    for name in filter(None, names.split(",")):
        collect(known, name, modules)
    contents = [(name, pathlib.Path(path).read_bytes()) for name, path in (file.split("=", 1) for file in files)]
    if modules:
        contents.append(("modules", "".join(f"{name}\n" for name in modules).encode()))
    contents += [(f"lib/{name}.ko", module) for name, module in modules.items()]
    folders = sorted({str(parent) for name, _ in contents for parent in pathlib.PurePath(name).parents} - {"."})
    entries = [(name, 0o40755, b"") for name in folders] + [(name, 0o100755, data) for name, data in contents]
    with open(output, "wb") as archive:
        for inode, (name, mode, data) in enumerate(entries, 1):
            archive.write(entry(inode, name, mode, data))
        archive.write(entry(0, "TRAILER!!!", 0, b""))


main(*sys.argv[1:])
