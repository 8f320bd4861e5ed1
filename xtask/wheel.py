"""Writes the wheel that carries the service's binary and the client (the format of PEP 427).

`wheel.py --binary FILE --to FOLDER` prints the path of the wheel. Name, version and dependencies are those of
`sdk/python/pyproject.toml`; the platform is the one that the binary was linked for.
"""

import argparse
import base64
import hashlib
import platform
import re
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sdk" / "python"
# The earliest time that an archive can hold: the same files give the same wheel.
WHEN = (1980, 1, 1, 0, 0, 0)


def platform_tag(binary: bytes) -> str:
    """`manylinux_2_35_x86_64`: the newest version of glibc that the binary asks for."""
    versions = re.findall(rb"GLIBC_2\.(\d+)", binary)
    if not versions:
        raise SystemExit("the binary asks for no version of glibc: it is not linked for Linux with glibc")
    return f"manylinux_2_{max(map(int, versions))}_{platform.machine()}"


def metadata(project: dict, service: dict) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        "Summary: Sextant, the model-less inference service: the server, its command line and a client.",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {service['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    lines += [f"Requires-Dist: {it}" for it in project["dependencies"] + service["dependencies"]]
    for extra, needed in service["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {it}; extra == '{extra}'" for it in needed]
    return "\n".join(lines) + "\n\n" + (PACKAGE / "README.md").read_text()


def contents(binary: bytes, tag: str, stem: str, document: dict) -> dict[str, bytes]:
    """Each file of the wheel but the record, by its name."""
    info = f"{stem}.dist-info"
    sources = sorted((PACKAGE / "src" / "sextant").glob("*.py")) + [PACKAGE / "src" / "sextant" / "py.typed"]
    files = {f"sextant/{source.name}": source.read_bytes() for source in sources}
    files[f"{stem}.data/scripts/sextant"] = binary
    wheel = f"Wheel-Version: 1.0\nGenerator: sextant\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    files[f"{info}/METADATA"] = metadata(document["project"], document["tool"]["sextant"]).encode()
    files[f"{info}/WHEEL"] = wheel.encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    return files


def record(files: dict[str, bytes], name: str) -> bytes:
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    return ("\n".join([*lines, f"{name},,"]) + "\n").encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    document = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    binary = arguments.binary.read_bytes()
    tag = platform_tag(binary)
    stem = f"{document['project']['name'].replace('-', '_')}-{document['project']['version']}"
    files = contents(binary, tag, stem, document)
    name = f"{stem}.dist-info/RECORD"
    files[name] = record(files, name)
    arguments.to.mkdir(parents=True, exist_ok=True)
    target = arguments.to / f"{stem}-py3-none-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if "/scripts/" in path else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)
    print(target)


if __name__ == "__main__":
    main()
