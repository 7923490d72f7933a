"""Set up a private environment in .venv and run something in it.

    python3 run.py estimate      the main job on a built-in model; any `dobrushin` command line works
    python3 run.py test          the tests but for the slow ones; further arguments go to pytest
    python3 run.py test --all    all tests

Needs Python 3.11 or newer and pip, nothing else.
"""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE / ".venv"
BIN = HOME / ("Scripts" if sys.platform == "win32" else "bin")


def set_up(extras: str) -> None:
    """Make the environment and install the package with these extras, unless that was done before."""
    wanted = hashlib.sha256((HERE / "pyproject.toml").read_bytes()).hexdigest() + "\n"
    mark = HOME / f"installed-{extras}"
    if mark.exists() and mark.read_text() == wanted:
        return
    print(f"Setting up {HOME.name} (once) ...", file=sys.stderr, flush=True)
    if not (HOME / "pyvenv.cfg").exists():
        # Without pip of its own, so that systems that package Python's ensurepip separately will do.
        venv.create(HOME, with_pip=False)
    python = BIN / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--editable", f"{HERE}[{extras}]"], check=True)
    mark.write_text(wanted)


def main() -> int:
    arguments = sys.argv[1:] or ["--help"]
    if sys.version_info < (3, 11):
        print("dobrushin needs Python 3.11 or newer. This is " + sys.version.split()[0] + ".", file=sys.stderr)
        return 1
    testing = arguments[0] == "test"
    try:
        set_up("test" if testing else "plots")
    except subprocess.CalledProcessError as error:
        print(
            f"The installation failed (pip ended with status {error.returncode}; its own message is above).",
            file=sys.stderr,
        )
        return 1
    if testing:
        command = [str(BIN / "python"), "-m", "pytest", "-n", "auto", *arguments[1:]]
        return subprocess.run(command, cwd=HERE, check=False).returncode
    return subprocess.run([str(BIN / "dobrushin"), *arguments], check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
