"""What the suites need from PyPI and npm, below target/clients, installed anew where the versions wanted have changed."""
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.normpath(os.path.join(here, "..", ".."))
folder = os.path.join(root, "target", "clients")


def python_with(requirements, place=None):
    """The Python of an environment, in `place` or below target/clients, that has what a file of requirements names."""
    place = place or os.path.join(folder, requirements.removesuffix(".txt"))
    python = os.path.join(place, "bin", "python")
    with fresh(place, requirements) as install:
        if install:
            run(sys.executable, "-m", "venv", place)
            run(*pip(python, "install"), "-r", os.path.join(here, requirements))
    return python


def source_of_openai():
    """The folder of the Python package's source: its own tests are in no wheel."""
    place = os.path.join(folder, "source")
    with fresh(place, "requirements.txt") as install:
        if install:
            with open(os.path.join(here, "requirements.txt")) as file:
                wanted = next(line.strip() for line in file if line.startswith("openai=="))
            python = python_with("requirements.txt")
            run(*pip(python, "download"), "--no-deps", "--no-binary", "openai", "-d", place, wanted)
            # By tar: Debian 12's Python cannot refuse what an archive should not have, and tar does so by itself.
            run("tar", "-xzf", os.path.join(place, wanted.replace("==", "-") + ".tar.gz"), "-C", place)
    return next(entry.path for entry in os.scandir(place) if entry.is_dir())


def node():
    """The folder of Node's packages, Node itself among them."""
    place = os.path.join(folder, "node")
    with fresh(place, "package.json") as install:
        if install:
            shutil.copy(os.path.join(here, "package.json"), place)
            run("npm", "install", "--silent", "--no-audit", "--no-fund", cwd=place)
    return place


@contextlib.contextmanager
def fresh(place, name):
    """Says whether `place` is to be filled, which is empty then, and marks it as full at the end."""
    with open(os.path.join(here, name), "rb") as file:
        wanted = hashlib.sha256(file.read()).hexdigest()
    mark = os.path.join(place, "installed")
    with contextlib.suppress(FileNotFoundError), open(mark) as file:
        if file.read() == wanted:
            yield False
            return
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    file, place_shown = (os.path.relpath(os.path.join(here, path), root) for path in [name, place])
    print(f"installing what {file} names, in {place_shown}", flush=True)
    yield True
    with open(mark, "w") as file:
        file.write(wanted)


def pip(python, command):
    return [python, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]


def run(*command, **options):
    if subprocess.run(command, **options).returncode != 0:
        sys.exit(f"{' '.join(command)} failed; what it fetches needs a network")
