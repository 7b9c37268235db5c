"""A wheel that holds data only, written with the standard library: equal bytes for equal content.

The format is that of the binary distribution format in PyPA's specifications, version 1.0.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(
    r"([1-9][0-9]*!)?(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*"
    r"((a|b|rc)(0|[1-9][0-9]*))?(\.post(0|[1-9][0-9]*))?(\.dev(0|[1-9][0-9]*))?"
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can say; no wheel is older or newer
_MODE = 0o100644 << 16


@dataclass(frozen=True, slots=True)
class Project:
    """What the metadata say. Raises ValueError on a name or a version that no index would take."""

    name: str
    version: str
    summary: str
    generator: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not self.module.isidentifier():
            msg = f"{self.name!r} can't be the name of a package; one is written my-kernels-tuned"
            raise ValueError(msg)
        if not _VERSION.fullmatch(self.version):
            msg = f"{self.version!r} is not a public version in normal form, such as 1.2.0"
            raise ValueError(msg)

    @property
    def module(self) -> str:
        """The name in the wheel's file name, and of the package in it."""
        return re.sub(r"[-_.]+", "_", self.name).lower()

    @property
    def file_name(self) -> str:
        return f"{self.module}-{self.version}-py3-none-any.whl"


def make_wheel(
    project: Project, files: Mapping[str, bytes], entry_points: Mapping[str, Mapping[str, str]]
) -> bytes:
    """The wheel with these files by path, and these entry points by group and name."""
    info = f"{project.module}-{project.version}.dist-info"
    sections = (
        "\n".join([f"[{group}]", *(f"{name} = {points[name]}" for name in sorted(points)), ""])
        for group, points in sorted(entry_points.items())
    )
    metadata = {
        f"{info}/METADATA": (
            "Metadata-Version: 2.1\n"
            f"Name: {project.name}\n"
            f"Version: {project.version}\n"
            f"Summary: {project.summary}\n"
            "Requires-Python: >=3.10\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\n"
            f"Generator: {project.generator}\n"
            "Root-Is-Purelib: true\n"
            "Tag: py3-none-any\n"
        ),
        f"{info}/entry_points.txt": "\n".join(sections),
    }
    ordered = [(path, files[path]) for path in sorted(files)]
    ordered += [(path, text.encode()) for path, text in sorted(metadata.items())]
    record = "".join(f"{path},{_digest(content)},{len(content)}\n" for path, content in ordered)
    ordered.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode()))
    return make_zip(ordered)


def make_zip(files: list[tuple[str, bytes]]) -> bytes:
    """A zip file of these files in this order: the same bytes each time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content in files:
            member = zipfile.ZipInfo(path, _EPOCH)
            member.create_system = 3  # Unix, wherever it is written
            member.external_attr = _MODE
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content)
    return out.getvalue()


def _digest(content: bytes) -> str:
    raw = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
