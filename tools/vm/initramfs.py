"""Writes an initramfs of busybox, kernel modules with all that they depend on, an init script, and the job that it runs.

usage: initramfs.py OUTPUT BUSYBOX INIT JOB MODULES_FOLDER MODULE...

The archive is cpio's "newc" form (kernel: Documentation/driver-api/early-userspace/buffer-format.rst), uncompressed.
The modules' names lie in /modules in the order to insert them in.
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


def main(output, busybox, init, job, folder, *names):
    modules = {}
    files = module_files(pathlib.Path(folder))
    for name in names:
        collect(files, name, modules)
    folders = [(name, 0o40755, b"") for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "root", "lib")]
    contents = [
        ("bin/busybox", 0o100755, pathlib.Path(busybox).read_bytes()),
        ("init", 0o100755, pathlib.Path(init).read_bytes()),
        ("job", 0o100644, pathlib.Path(job).read_bytes()),
        ("modules", 0o100644, "".join(f"{name}\n" for name in modules).encode()),
    ]
    contents += [(f"lib/{name}.ko", 0o100644, module) for name, module in modules.items()]
    with open(output, "wb") as archive:
        for inode, (name, mode, data) in enumerate(folders + contents, 1):
            archive.write(entry(inode, name, mode, data))
        archive.write(entry(0, "TRAILER!!!", 0, b""))


main(*sys.argv[1:])
